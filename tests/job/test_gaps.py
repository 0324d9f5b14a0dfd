"""What is gone of a log is in the panes of its time, and in no others, until a window has said so."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.committing.panetables import merged_counters
from agents.disk.store import Store
from agents.tasks.checkpoints import counted
from elf.batch import decode
from elf.errors import PeerError
from elf.fields import replace
from elf.job.checkpoint import StreamCheckpoint
from elf.job.commands import Answered, Feed, Finish, Idle, Install
from elf.job.counters import COUNTER_STATES, GAP_PANES_MAX, PaneCounters, counters
from elf.job.gaps import (
    GAPS,
    GAPS_MAX,
    Gap,
    Missed,
    from_bytes,
    gaps_alone,
    gaps_of,
    named,
    over_budget,
    to_bytes,
    with_gaps,
)
from elf.job.snapshots import Sealed
from elf.job.spec import Flow
from elf.job.worker.stream import StreamWorker, WorkerSettings
from lab.chaos.engine import SECOND, PyEngine
from tests.support.chunks import FLOW, chunk

SETTINGS = WorkerSettings(
    idle_ms=5_000, future_us=None, lateness_us=SECOND, checkpoint_ms=10**9, name="web-1"
)
PANE = FLOW.fragment.pane_us
LATENESS = FLOW.fragment.lateness_us or 0

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.sampled_from("abc")), max_size=5)


def at(*seconds: float) -> list[tuple[int, str]]:
    return [(int(second * SECOND), "a") for second in seconds]


def marked(sealed: list[Sealed]) -> dict[int, set[Gap]]:
    """By pane, of everything that was sealed."""
    return gaps_of(decode(one.counters) for one in sealed if one.counters)


def lost(source: str = "log", *, ended: bool = True, size: int | None = 7) -> Missed:
    return Missed(source, f"/var/log/{source}", 10, size, "it is gone", ended)


def panes(first_us: int, last_us: int) -> set[int]:
    return set(range(first_us // PANE, last_us // PANE + 1))


def restarted(worker: StreamWorker) -> StreamWorker:
    checkpoint = msgspec.msgpack.decode(msgspec.msgpack.encode(worker.checkpoint()), type=StreamCheckpoint)
    return StreamWorker("s", SETTINGS, PyEngine(), checkpoint)


@pytest.mark.parametrize("killed", [False, True])
def test_the_panes_from_the_last_row_before_a_gap_to_the_first_one_behind_it_lack_rows(killed: bool) -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    worker.handle(Feed(chunk(at(1, 10), 0), 0))
    behind = PANE * 10 - LATENESS  # the next pane may have a row that was written before this one
    outcome = worker.handle(Feed(chunk(at(behind / SECOND, 40), 2), 0, missed=(lost(),)))
    gap = Gap(10 * SECOND, behind, "web-1", "/var/log/log", 7)
    assert [one for one, _ in outcome.gaps] == [gap]
    sealed = list(outcome.sealed)
    if killed:
        worker = restarted(worker)
    sealed += worker.handle(Finish()).sealed
    found = marked(sealed)
    assert set(found) == panes(10 * SECOND - LATENESS, behind + LATENESS) >= {10}
    assert set.union(*found.values()) == {gap}


def test_a_gap_is_marked_in_its_own_panes_however_late_rows_may_be() -> None:
    late = replace(FLOW, fragment=replace(FLOW.fragment, lateness_us=PANE * 2 * GAP_PANES_MAX))
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(late))
    begin = PANE * 3 * GAP_PANES_MAX // SECOND
    worker.handle(Feed(chunk(at(begin), 0), 0))
    worker.handle(Feed(chunk(at(begin + 20), 2), 0, missed=(lost(),)))
    (state,) = worker.states().values()
    ((first, end, _),) = state.counters._gaps
    own = range(begin * SECOND // PANE, (begin + 20) * SECOND // PANE + 1)
    assert first < own[0] <= own[-1] < end
    assert end - first <= GAP_PANES_MAX


def test_a_gap_behind_which_nothing_was_written_ends_now_and_is_durable_at_once() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    worker.handle(Feed(chunk(at(1, 10), 0), 10_000))
    outcome = worker.handle(Idle(14_000, ("log",), (lost(ended=False, size=None),)))
    assert outcome.checkpoint is not None
    ((gap, _),) = outcome.gaps
    assert (gap.from_us, gap.to_us, gap.bytes) == (10 * SECOND, 14 * SECOND, -1)
    assert gap.shown()["bytes"] is None


def test_what_would_have_been_late_and_what_was_before_the_flow_marks_nothing_that_is_over() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    early, late = FLOW, Flow("1a7e" * 6, FLOW.fragment, bytes(16), "home")
    worker.handle(Install(early))
    worker.handle(Feed(chunk(at(1, 10), 0), 0))
    worker.handle(Feed(chunk(at(60, 61), 0, "other"), 0))
    sealed = [
        one for now in range(0, 30_000, 1_000) for one in worker.handle(Idle(now)).sealed
    ]  # all are idle
    below = sealed[-1].end
    worker.handle(Install(late))
    sealed = list(worker.handle(Feed(chunk(at(12), 2), 30_000, missed=(lost(),))).sealed)
    sealed += worker.handle(Finish()).sealed
    assert set(marked([one for one in sealed if one.flow == early.uid])) == {below}
    assert marked([one for one in sealed if one.flow == late.uid]) == {}


def test_a_row_of_before_the_flow_is_late_if_its_own_source_says_so() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Feed(chunk(at(100), 0), 0))
    worker.handle(Install(FLOW))
    outcome = worker.handle(Feed(chunk(at(98, 110, 50, 111), 1), 0))
    assert outcome.counts["late"] == 1  # that of 98 was in time when it came, and is nobody's
    sealed = [*outcome.sealed, *worker.handle(Finish()).sealed]
    assert sum(row["late"] for one in sealed if one.counters for row in decode(one.counters).to_pylist()) == 1


@given(spans, spans, st.integers(0, 40))
def test_marks_add_up_as_sets_do(
    ours: list[tuple[int, int, str]], theirs: list[tuple[int, int, str]], checkpoint: int
) -> None:
    def made(given: list[tuple[int, int, str]]) -> tuple[PaneCounters, dict[int, set[Gap]]]:
        counter_tables, expected = PaneCounters(), dict[int, set[Gap]]()
        for first, more, name in given:
            gap = Gap(first, first + more, name, "/a.log")
            counter_tables.mark(first, first + more, gap)
            for pane in range(first, first + more + 1):
                expected.setdefault(pane, set()).add(gap)
        return counter_tables, expected

    counter_tables, expected = made(ours)
    whole = counter_tables.table()
    assert gaps_of([whole] if whole is not None else []) == expected
    assert PaneCounters(whole).table() == whole
    below = counter_tables.take_below(checkpoint)
    assert gaps_of([below] if below is not None else []) == {
        p: g for p, g in expected.items() if p < checkpoint
    }
    rest = counter_tables.table()
    assert gaps_of([rest] if rest is not None else []) == {
        p: g for p, g in expected.items() if p >= checkpoint
    }
    others, more = made(theirs)
    both = merged_counters([whole, others.table(), counters(pa.array([3]).to_numpy())], COUNTER_STATES)
    assert both is not None
    assert gaps_of([both]) == {p: expected.get(p, set()) | more.get(p, set()) for p in {*expected, *more}}


@given(spans)
def test_marks_of_one_gap_that_meet_are_one(given: list[tuple[int, int, str]]) -> None:
    counter_tables, expected = PaneCounters(), dict[int, set[Gap]]()
    for first, more, name in given:
        gap = over_budget(name, "the agent", 1)
        counter_tables.mark(first, first + more, gap)
        for pane in range(first, first + more + 1):
            expected.setdefault(pane, set()).add(gap)
    whole = counter_tables.table()
    assert gaps_of([whole] if whole is not None else []) == expected
    runs = sum(gap not in expected.get(pane - 1, ()) for pane, gaps in expected.items() for gap in gaps)
    assert len(counter_tables._gaps) == len(PaneCounters(whole)._gaps) == runs, "no pane is walked twice"


def test_a_pane_names_so_many_gaps_and_adds_up_the_rest() -> None:
    gaps = [Gap(n, n + 5, f"web-{n}", "/a.log", 10) for n in range(GAPS_MAX + 44)]
    kept = from_bytes(to_bytes(gaps))
    assert len(kept) == GAPS_MAX
    assert kept[:-1] == gaps[: GAPS_MAX - 1]
    assert kept[-1] == Gap(GAPS_MAX - 1, GAPS_MAX + 48, "", "45 others", 450)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x91\x92\x01\x02"])
def test_gaps_that_a_peer_made_up_are_its_error(data: bytes) -> None:
    table = counters(pa.array([1]).to_numpy()).append_column(GAPS, pa.array([data], pa.binary()))
    with pytest.raises(PeerError):
        list(named(table))


def test_a_tally_without_gaps_has_no_column_of_them() -> None:
    assert GAPS not in with_gaps(counters(pa.array([1]).to_numpy()), {}).column_names


def test_gaps_alone_count_nothing() -> None:
    counter_tables = PaneCounters()
    gap = Gap(1, 2, "web-1", "/a.log")
    counter_tables.mark(4, 5, gap)
    table = counter_tables.table()
    assert table is not None
    assert gaps_of([gaps_alone(table)]) == {4: {gap}, 5: {gap}}
    assert gaps_alone(table).column_names == ["_pane", GAPS]
    assert gaps_alone(counters(pa.array([3]).to_numpy())).num_rows == 0


@pytest.mark.parametrize("killed", [False, True])
def test_a_flow_begins_behind_the_gaps_that_are_known(killed: bool) -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Feed(chunk(at(10), 0), 10_000))
    worker.handle(Idle(13_900, ("log",), (lost(ended=False),)))
    worker = restarted(worker) if killed else worker
    worker.handle(Install(FLOW))
    (flow,) = worker.checkpoint().flows
    assert flow.live_from == (13_900_000 + LATENESS) // PANE + 1 == 8


def test_what_panes_lack_for_which_another_agent_has_answered_is_told_with_the_open_one() -> None:
    worker = StreamWorker("s", SETTINGS, PyEngine())
    worker.handle(Install(FLOW))
    worker.handle(Feed(chunk(at(1, 10), 0), 0))
    outcome = worker.handle(Feed(chunk(at(20, 40), 2), 0, missed=(lost(),)))
    (row,), (gap, _) = outcome.sealed, outcome.gaps[0]
    answered = Answered(FLOW.uid, (((row.start, row.end, row.part), ((row.start, row.end, 1),)),))
    store = Store(":memory:")
    store.save_checkpoint("s", b"", [row])
    command = counted(answered, store)
    assert isinstance(command, Answered)
    assert command.gaps == (gap,)
    worker.handle(command)
    sealed = worker.handle(Finish()).sealed
    assert gap in set.union(*marked(list(sealed)).values())
    store.close()
