"""Alerts over windows (``elf.job.alerts``), beside three-valued logic written out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from elf.fields import replace
from elf.job.alerts import Memory, Transition, Verdict, interrupted, judged, kept, remembered
from elf.ql.alert import Alert

STEP = 10
GROUPS = ("[]", '["a"]', '["b"]')


def window(place: int, groups: str = "", known: bool = True, revision: int = 0) -> Verdict:
    missing = () if known else ("web-3",)
    return Verdict(place * STEP, (place + 1) * STEP, 1, revision, known, tuple(groups.split()), 0, missing)


def told(alert: Alert, *verdicts: Verdict | None) -> list[Transition]:
    """None: there results were lost."""
    memory, found = Memory(), list[Transition]()
    for verdict in verdicts:
        memory = remembered(kept(memory))
        if verdict is None:
            memory = interrupted(memory)
            continue
        memory, change = judged(alert, memory, verdict)
        found += [change] if change is not None else []
    return found


def states(found: list[Transition]) -> list[tuple[str, int]]:
    return [(one.state, one.window.start_us // STEP) for one in found]


def test_it_fires_once_after_so_many_windows_and_ends_with_the_first_that_is_false() -> None:
    found = told(Alert("", 3), *(window(place, "k" if 1 <= place < 7 else "") for place in range(10)))
    assert states(found) == [("firing", 3), ("quiet", 7)]
    assert found[0].began == ("k",)
    assert found[1].ended == ("k",)
    assert [one.number for one in found] == [1, 2]


def test_who_is_away_makes_it_unknown_and_neither_fires_nor_ends_it() -> None:
    away = [window(place, "k", known=False) for place in range(2, 5)]
    found = told(Alert("", 2), window(0), window(1, "k"), *away, window(5, "k"), window(6, "k"), window(7))
    assert states(found) == [("unknown", 2), ("firing", 6), ("quiet", 7)]
    assert found[0].missing == ("web-3",)
    firing = told(Alert("", 1), window(0, "k"), window(1, known=False), window(2, "k"), window(3))
    assert states(firing) == [("firing", 0), ("unknown", 1), ("firing", 2), ("quiet", 3)]
    assert firing[1].firing == ("k",)
    assert (firing[2].began, firing[1].ended) == ((), ())


def test_a_window_that_is_false_decides_whatever_the_others_would_be() -> None:
    found = told(Alert("", 2), window(0), window(1, known=False), window(2), window(3, known=False))
    assert found == []


def test_a_revision_that_brings_the_missing_rows_decides() -> None:
    verdicts = [window(0, "k"), window(1, known=False), window(1, "k", revision=1), window(1, revision=0)]
    assert states(told(Alert("", 2), *verdicts)) == [("unknown", 1), ("firing", 1)]
    late = [window(0, "k"), window(1, "k"), window(2, "k"), window(0, revision=1)]
    assert states(told(Alert("", 2), *late)) == [("firing", 1)]  # it is none of the last two any more


def test_where_windows_are_left_out_the_run_begins_anew() -> None:
    found = told(
        Alert("", 2), window(0, "k"), None, window(2, "k"), window(3, "k"), None, window(9, known=False)
    )
    assert states(found) == [("firing", 3), ("unknown", 9)]


def test_another_version_of_the_job_begins_anew_and_the_former_one_says_nothing_more() -> None:
    second = [replace(window(place, "k"), version=2) for place in (1, 2)]
    found = told(
        Alert("", 2), window(0, "k"), second[0], window(1), window(2), second[1], window(2, revision=1)
    )
    assert states(found) == [("firing", 2)]


def test_each_group_has_a_run_of_its_own() -> None:
    found = told(Alert("", 2), window(0, "a b"), window(1, "b"), window(2, "a b"), window(3, "a"))
    assert [(one.began, one.ended) for one in found] == [(("b",), ()), (("a",), ("b",))]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Alert, list[Verdict]]:
    """Windows as they come, some of them revised later."""
    found: list[Verdict] = []
    for place in range(draw(st.integers(1, 14))):
        groups = " ".join(sorted(draw(st.sets(st.sampled_from(GROUPS)))))
        found.append(window(place, groups, known=draw(st.integers(0, 3)) > 0))
        if draw(st.booleans()):
            old = draw(st.sampled_from(found))
            revision = 1 + max(one.revision for one in found if one.start_us == old.start_us)
            groups = " ".join(sorted(draw(st.sets(st.sampled_from(GROUPS)))))
            found.append(window(old.start_us // STEP, groups, draw(st.booleans()), revision))
    return Alert("", draw(st.integers(1, 4))), found


def kleene(alert: Alert, seen: list[Verdict]) -> tuple[bool, dict[str, bool | None]]:
    """Whether there have been so many windows in a run, and AND for each group; None: unknown."""
    last: dict[int, Verdict] = {}
    for one in seen:
        if one.start_us not in last or one.revision > last[one.start_us].revision:
            last[one.start_us] = one
    run: list[Verdict] = []
    at = max(last)
    while at in last and len(run) < alert.windows:
        run.append(last[at])
        at -= STEP
    found: dict[str, bool | None] = {}
    for group in (*GROUPS, "another"):
        values = [(group in one.groups) if one.known else None for one in run]
        found[group] = False if False in values else None if None in values else True
    return len(run) == alert.windows, found


@settings(max_examples=300)
@given(histories())
def test_it_is_and_over_the_last_windows(history: tuple[Alert, list[Verdict]]) -> None:
    alert, verdicts = history
    memory, numbers = Memory(), []
    for place, verdict in enumerate(verdicts):
        before = memory
        memory, change = judged(alert, memory, verdict)
        full, value = kleene(alert, verdicts[: place + 1])
        for group in set(memory.firing) - set(before.firing):
            assert full, "it fires too soon"
            assert value[group] is True, "it fires without knowing"
        for group in set(before.firing) - set(memory.firing):
            assert value[group] is False, "it ends without knowing"
        if full:
            assert {group for group in value if value[group]} <= set(memory.firing)
            assert (memory.state == "unknown") == (None in value.values())
            if None not in value.values():
                assert memory.firing == tuple(sorted(group for group in value if value[group]))
        assert (change is None) == ((before.firing, before.state) == (memory.firing, memory.state))
        if change is not None:
            numbers.append(change.number)
            assert (change.state, change.firing) == (memory.state, memory.firing)
        assert judged(alert, memory, verdict) == (memory, None), "what comes again changes nothing"
    assert numbers == list(range(1, len(numbers) + 1))


def test_what_it_remembers_travels() -> None:
    memory = Memory((window(0, "k"),), ("k",), "firing", 7)
    assert remembered(kept(memory)) == memory
    assert remembered(b"") == Memory()
    assert replace(memory, state="quiet") != memory
