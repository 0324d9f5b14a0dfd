"""Panes that are merged into units: who lets them be, at a head's border, and at the root."""

from __future__ import annotations

import msgspec
import pytest

from elf.errors import ElfBug
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readings import ENDED_MAX
from elf.job.contributions import Piece, Pile, bitmap
from elf.job.messages.log import JobAdded, JobDropped, VersionAdded, VersionEnded
from elf.job.messages.rollup import UNIT_PANES_MAX, UnitSlice
from elf.job.rollup.border import Border
from elf.job.rollup.decide import UNIT_QUIET, UNIT_SLACK_MS
from elf.job.rollup.root import Root
from elf.job.rollup.slices import piece_of, slice_of
from elf.job.spec import Flow, JobSpec, flow_uid
from elf.job.units import UNIT_US_MAX, held_panes, is_mergeable, joined_at, panes_of
from elf.ql.plan import Plan, Top
from elf.windows import Cumulative
from lab.chaos.engine import SECOND, plan, spec_of, staged, united
from tests.support.members import joined
from tests.support.stragglers import progress, rooted

ALL = bitmap(range(3))
FRAGMENT = united(60, 12).fragment


@pytest.mark.parametrize(
    ("query", "panes"),
    [
        (united(60, 12), 12),
        (plan(4, 2), 1),
        (replace(united(60, 12), windows=(Cumulative(600 * SECOND, 30 * SECOND),)), 6),
        (staged(united(60, 12), 120, 60), 1),
        (replace(united(60, 12), fragment=replace(united(60, 12).fragment, leap=True)), 1),
        (replace(united(60, 12), fragment=replace(united(60, 12).fragment, changes_us=SECOND)), 1),
        (
            replace(
                united(60, 12), fragment=replace(united(60, 12).fragment, keep=Top("s0", True, False, 1))
            ),
            1,
        ),
        (united(600, 5), 1),
    ],
)
def test_how_many_panes_a_query_lets_be_one(query: Plan, panes: int) -> None:
    assert panes_of(query) == panes


def test_units_are_no_longer_than_they_may_be() -> None:
    assert held_panes(12, SECOND, 5 * SECOND) == 4
    assert held_panes(7, SECOND, 6 * SECOND) == 1
    assert held_panes(12, SECOND, 0) == 1
    assert held_panes(12, SECOND, None) == 12
    assert is_mergeable(united(6, 6).fragment)


def raw(pane: int, members: int, tag: bytes = b"x") -> Piece:
    return Piece(pane, pane + 1, members, payload=tag)


def test_a_border_holds_panes_until_a_unit_is_whole() -> None:
    border = Border()
    assert not border.takes(raw(6, 1)), "nobody lets panes be one"
    border.change(3, 3)
    for pane in (6, 7):
        assert border.takes(raw(pane, 3))
        border.add(raw(pane, 3), 100)
        assert border.ready(1_000, 500, 100) == []
    border.add(raw(8, 3), 200)
    ((pieces, unit),) = border.ready(1_000, 500, 200)
    assert (unit, [piece.start for piece in pieces]) == (3, [6, 7, 8])
    assert not border


def test_a_unit_that_is_not_whole_leaves_pane_by_pane_when_it_has_waited() -> None:
    border = Border()
    border.change(3, 3)
    border.add(raw(6, 3), 0)
    border.add(raw(8, 1), 10)
    assert border.deadline(1_000, 500) == 510
    assert border.ready(1_000, 500, 509) == []
    assert [unit for _, unit in border.ready(1_000, 500, 510)] == [1, 1]
    border.add(raw(9, 3), 600)
    assert border.deadline(1_000, 500) == 600 + 3_500
    assert [unit for _, unit in border.change(1, 1)] == [1], "readers want each pane now"
    assert not border


def test_a_unit_is_kept_as_a_whole_or_not_at_all_and_never_cut() -> None:
    pile, unit = Pile(), Piece(6, 9, 6, payload=b"u", unit=3)
    pile.add(raw(7, 2))
    pile.add(unit)
    assert list(pile) == [raw(7, 2)]
    pile.take(6, 9)
    pile.add(unit)
    pile.add(Piece(5, 8, 2, payload=b"m"))
    assert [(one.start, one.end, one.members) for one in pile] == [(6, 9, 6), (5, 6, 2)]
    with pytest.raises(ElfBug):
        pile.take(6, 7)


def test_a_message_with_a_unit_says_which_panes_are_one() -> None:
    flow = Flow("uid", plan().fragment, b"0" * 16, "home")
    unit = Piece(6, 9, 6, b"c", b"p", unit=3)
    message = slice_of(flow, unit)
    assert isinstance(message, UnitSlice)
    assert piece_of(message) == unit
    for start, end, panes in ((5, 8, 3), (6, 12, 3), (6, 7, 1)):
        with pytest.raises(ValueError, match="none"):
            UnitSlice(flow="f", start=start, end=end, members=b"\6", unit=panes)


@pytest.mark.parametrize("panes", [UNIT_PANES_MAX + 1, 1 << 61])
def test_no_message_has_a_longer_unit_than_any_head_makes(panes: int) -> None:
    assert UNIT_PANES_MAX == UNIT_US_MAX // 1_000, "a pane is whole milliseconds"
    fine = UnitSlice(flow="0" * 24, start=6, end=9, members=b"\6", unit=3)
    said = msgspec.msgpack.encode(fine)
    assert msgspec.msgpack.decode(said, type=UnitSlice) == fine
    long = UnitSlice(flow="0" * 24, start=panes, end=2 * panes, members=b"\6", unit=panes)
    with pytest.raises(msgspec.ValidationError, match=f"<= {UNIT_PANES_MAX}"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(long), type=UnitSlice)


@pytest.mark.parametrize("units", [1, 6])
def test_a_unit_that_nobody_asked_for_is_refused_whatever_its_length(units: int) -> None:
    root, panes = root_of(units), 1 << 60
    root.take(Piece(panes, 2 * panes, 0b011, unit=panes))
    assert not root.covered.holds()


def test_a_unit_with_a_pane_in_which_a_member_is_refused_is_refused_as_a_whole() -> None:
    root = root_of(6)
    root.covered.refused.add(raw(20, 0b010))
    root.take(Piece(18, 24, 0b011, unit=6))
    assert not root.covered.holds()
    root.take(Piece(18, 24, 0b101, unit=6))
    root.take(Piece(12, 18, 0b011, unit=6))
    assert len(root.covered.blocks(12)) == 2


def root_of(units: int, version: int = 5) -> Root:
    """The root of a flow with three members, from pane 12 on, all of whom have passed panes up to 24."""
    root = rooted(united(6, 6), 3)
    root.begin(12, 0)
    root.set_units(units, version)
    for member in range(3):
        root.hear(member, progress(24), 100)
    return root


def test_a_root_commits_a_unit_as_a_whole_and_partial_members_revise_it() -> None:
    root = root_of(6)
    root.take(Piece(12, 18, 0b011, payload=b"unit", unit=6))
    for pane in range(12, 15):
        root.take(raw(pane, 0b100))
    assert root.propose(200) == [], "member 2 lacks three panes"
    (work,) = root.propose(10_000)
    assert (work.start, work.end, work.members, work.whole) == (12, 18, 0b011, True)
    assert [piece.unit for piece in work.pieces] == [6]
    root.committed(work, 10_000)
    revised = []
    while works := root.propose(10_000):
        root.committed(works[0], 10_000)
        revised.append((works[0].start, works[0].end, works[0].members))
    assert revised == [(pane, pane + 1, ALL) for pane in range(12, 15)]
    root.check()


def test_a_root_takes_no_unit_that_its_readers_do_not_accept_or_whose_commits_it_does_not_know() -> None:
    unit = Piece(12, 18, ALL, payload=b"unit", unit=6)
    root = root_of(1)
    root.take(unit)
    assert not root.covered.holds()
    root.set_units(6, 5)
    root.take(unit)
    assert root.covered.holds()
    root.set_units(3, 6)
    assert not root.covered.holds(), "a finer reader has come"
    root.note_known(9, 12)
    root.set_units(6, 8)
    root.take(unit)
    assert not root.covered.holds(), "another root has committed with a longer log"


def test_a_unit_that_comes_late_revises_what_was_committed_as_a_whole_and_nothing_else() -> None:
    root = root_of(6)
    root.take(Piece(12, 18, 0b001, payload=b"unit", unit=6))
    (work,) = root.propose(10_000)
    root.committed(work, 10_000)
    for pane in range(18, 24):
        root.take(raw(pane, 0b001))
    while works := root.propose(20_000):
        root.committed(works[0], 20_000)
    root.take(Piece(18, 24, 0b110, payload=b"late", unit=6))
    assert root.propose(20_000) == [], "its panes were committed one by one"
    root.take(Piece(12, 18, 0b110, payload=b"late", unit=6))
    (late,) = root.propose(20_000)
    assert (late.start, late.end, late.revision, late.members) == (12, 18, 1, ALL)
    root.committed(late, 20_000)
    root.check()


def spec(name: str, query: Plan, version: int = 1) -> JobSpec:
    """A version of a job that reads one and the same flow of panes of 5 s."""
    fragment = united(60, 12).fragment
    flow = Flow(flow_uid(fragment, ""), fragment, bytes(16), "a:1")
    return replace(spec_of(name, "me", 1, query, (flow,)), version=version)


def log_of(*added: JobSpec | tuple[JobSpec, str]) -> CatalogLog:
    """A log with two regions: versions that are added, and what ends or hides some."""
    log = CatalogLog([joined(1, 0, place="eu"), joined(2, 1, place="us")])
    for one in added:
        seq = log.last + 1
        if isinstance(one, JobSpec):
            known = log.job(one.uid) is not None
            log.append(VersionAdded(seq=seq, spec=one) if known else JobAdded(seq=seq, spec=one))
        elif one[1] == "dropped":
            log.append(JobDropped(seq=seq, uid=one[0].uid))
        else:
            log.append(VersionEnded(seq=seq, uid=one[0].uid, version=one[0].version))
    return log


def minutes(minutes: int) -> Plan:
    return replace(united(60, 12), windows=(Cumulative(600 * SECOND, minutes * 60 * SECOND),))


ONE, TWO, HALF = minutes(1), minutes(2), replace(united(30, 6), fragment=united(60, 12).fragment)
OLD, NEW, OTHER = spec("old", ONE), spec("new", ONE), spec("other", TWO)


@pytest.mark.parametrize(
    ("added", "joined"),
    [
        ((OLD, NEW), 0),
        ((OLD, OTHER, NEW), 0),
        ((OTHER, OLD, NEW), 4),
        ((OTHER, OLD, (OTHER, "over"), NEW), 4),
        ((OTHER, NEW), 4),
        ((OLD, spec("new", HALF)), 4),
        ((OLD, (OLD, "over"), spec("old", ONE, 2)), 0),
        ((OLD, OTHER, (OLD, "over"), NEW), 6),
        ((OLD, OTHER, (OLD, "dropped"), (OTHER, "dropped"), NEW), 6),
        ((OLD, (OTHER, "dropped"), NEW), 4),
        ((OLD, (spec("old", ONE, 2), "over"), (OLD, "dropped"), NEW), 5),
        ((OLD, NEW, (OTHER, "over")), 4),
    ],
)
def test_a_version_waits_for_roots_that_may_have_agreed_on_what_cuts_its_windows(
    added: tuple[JobSpec, ...], joined: int
) -> None:
    log = log_of(*added)
    (new,) = [one for one in added if isinstance(one, JobSpec)][-1:]
    assert joined_at(log, new) == (joined,)


def test_of_a_reading_that_is_forgotten_nothing_is_claimed() -> None:
    others = [(one, (one, "over")) for one in (spec(f"x{n}", ONE) for n in range(ENDED_MAX))]
    flat = [part for pair in others for part in pair]
    assert joined_at(log_of(OLD, *flat, NEW), NEW) == (0,)
    first = spec("first", ONE)
    log = log_of(OLD, first, (first, "over"), *flat, NEW)
    assert joined_at(log, NEW) == (5,)


def test_members_that_can_seal_no_more_before_a_unit_is_whole_do_not_wait_for_it_for_ever() -> None:
    root = rooted(united(6, 6), 3)
    root.begin(12, 0)
    root.set_units(6, 5)
    for member, sealed in enumerate((15, 15, 18)):
        root.hear(member, progress(sealed), 100)
    for pane in (12, 13, 14):
        root.take(raw(pane, 0b011))
    root.take(Piece(12, 18, 0b100, payload=b"unit", unit=6))
    overdue_ms = 100 + 5_000 + UNIT_SLACK_MS
    assert root.propose(overdue_ms - 1) == []
    assert root.covered.blocks(12), "its unit may come yet"
    assert root.propose(overdue_ms) == []
    assert root.covered.blocks(12) == []
    (asked,) = root.answers.missing(overdue_ms + UNIT_QUIET * 800)
    assert asked == (2, 12, 15)
    root.take(Piece(12, 15, 0b100, payload=b"again"))
    found = []
    while works := root.propose(overdue_ms + UNIT_QUIET * 800):
        root.committed(works[0], overdue_ms)
        found.append((works[0].start, works[0].end, works[0].members))
    assert found == [(12, 13, ALL), (13, 14, ALL), (14, 15, ALL)]
    root.check()
