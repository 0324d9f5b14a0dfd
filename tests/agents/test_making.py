"""What is kept of a version between its windows: once, by one thread at a time, and not for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import pyarrow as pa
import pytest

from agents.committing import making as makes
from agents.committing.kept import VERSIONS_MADE, Version, alike
from agents.committing.making import Made, Making, Sandboxed
from agents.committing.windowcommits import made_windows
from agents.disk.store import Store
from agents.ports import Told
from agents.tasks import engine
from agents.tasks.engine import Finisher
from elf.batch import decode
from elf.errors import PanesGone
from elf.fields import replace
from elf.job.catalog.membership import Identity
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.contributions import Piece
from elf.job.effects import CommitPanes, CommitWindows, Named, SaveJob
from elf.job.events import Delivered, WindowsCommitted
from elf.job.group.port import Draft, Drafted
from elf.job.spec import JobSpec, VersionRecord
from lab.chaos.engine import planned
from tests.support.window_commits import commit, effect, spec

ME = Identity("id", "a", 1, "10.0.0.7:7071")


class Watched(Finisher):
    """Which are open; ``held``: while it is not set, they stay at work."""

    opened: set[Finisher]
    runs = 0
    at_work = threading.Event()
    held = threading.Event()

    def run(self, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        self.opened.add(self)
        Watched.runs += 1
        self.at_work.set()
        assert self.held.wait(30)
        return super().run(groups, *beside)

    def close(self) -> None:
        super().close()
        self.opened.discard(self)


class Unheard:
    """Reports to nobody, but for ``failed``."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, str, str]] = []

    def told(self, effect: Told) -> None: ...
    def panes_committed(self) -> None: ...
    def windows_committed(self) -> None: ...

    def function_failed(self, kind: str, reason: str, job: str = "") -> None:
        self.failed.append((kind, reason, job))

    def delivered(self, event: Delivered) -> None: ...
    def not_made(
        self, job: str, error: Exception, *, early: bool = False, within: tuple[int, int] | None = None
    ) -> None: ...


class Pooled(Making):
    """With threads."""

    def __init__(self, store: Store, pool: ThreadPoolExecutor) -> None:
        self.unheard = Unheard()
        super().__init__(ME, store, Sandboxed(ME.name, None), self.unheard, lambda: 0)
        self._pool = pool

    def commit(self, work: CommitWindows) -> Future[Made]:
        return self._pool.submit(self.task(work)[1])


@pytest.fixture
def making(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pooled]:
    monkeypatch.setattr(engine, "Finisher", Watched)
    Watched.opened, Watched.runs = set(), 0
    Watched.at_work.clear()
    Watched.held.set()
    store, pool = Store(":memory:"), ThreadPoolExecutor(2)
    store.commit_panes(*PANES)
    made = Pooled(store, pool)
    yield made
    made.stop()
    pool.shutdown()
    made.versions.close()
    store.close()
    assert not Watched.opened


PANES = [commit(pane, 1, 0, [("a", 2, 0.5, "x")]) for pane in range(-3, 9)]


def version(number: int) -> JobSpec:
    job = spec(3, 1)
    return planned(
        job,
        replace(job.plan, final_sql=f"SELECT * FROM groups -- {number}", direct=None),
        version=number,
    )


def wanted(number: int = 1, last: int = 3) -> CommitWindows:
    return effect(version(number), last - 3, last, PANES)


def test_a_version_is_kept_from_one_window_to_the_next(making: Pooled) -> None:
    for last in (3, 6):
        done = making.commit(wanted(last=last)).result(30)
        assert isinstance(done, WindowsCommitted)
        assert done.rows == 3
        assert len(Watched.opened) == 1
    assert making.versions.numbers(version(1).uid) == [1]


def test_a_forgotten_master_leaves_no_statement_open(making: Pooled) -> None:
    making.commit(wanted()).result(30)
    making.versions.forget(version(1).uid)
    assert making.versions.numbers(version(1).uid) == []
    assert not Watched.opened


def test_of_a_job_the_last_versions_are_kept(making: Pooled) -> None:
    for number in range(1, 6):
        making.commit(wanted(number)).result(30)
    assert making.versions.numbers(version(1).uid) == [3, 4, 5]
    assert len(Watched.opened) == VERSIONS_MADE + 1


def test_what_is_kept_of_windows_that_cannot_be_made_is_no_other_thread_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version, given = Version(spec(2, 2).plan, Watched), list[bool]()

    class Lock:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None:
            given.append(version._kept is kept)

    monkeypatch.setattr(version, "_lock", Lock())
    with pytest.raises(PanesGone), version.alone() as (_, kept):
        raise PanesGone("gone")
    assert given == [False], "whoever waits for the lock has it now"


@pytest.mark.parametrize(("state", "left"), [("active", [2]), ("dropped", [])])
def test_what_is_saved_of_a_job_says_which_versions_go_on(
    making: Pooled, state: str, left: list[int]
) -> None:
    for number in (1, 2):
        making.commit(wanted(number)).result(30)
    records = (VersionRecord(version(1), state="finished"), VersionRecord(version(2), state="committed"))
    making.versions.saved(SaveJob(version(2), state, None, records))
    assert making.versions.numbers(version(1).uid) == left
    assert len(Watched.opened) == len(left)


def test_one_that_is_at_work_when_its_master_is_forgotten_is_closed_by_its_thread(making: Pooled) -> None:
    """So is one whose work was still waiting then: it does not come back."""
    Watched.held.clear()
    first, second = making.commit(wanted()), making.commit(wanted(last=6))
    assert Watched.at_work.wait(30)
    making.versions.forget(version(1).uid)
    assert len(Watched.opened) == 1
    Watched.held.set()
    for done in (first.result(30), second.result(30)):
        assert isinstance(done, WindowsCommitted)
        assert done.rows == 3
    assert making.versions.numbers(version(1).uid) == []
    assert not Watched.opened


def of(name: str, work: CommitWindows) -> CommitWindows:
    """The same of a job of another name."""
    return replace(work, spec=replace(work.spec, name=name))


def test_windows_of_equal_jobs_are_made_once(making: Pooled) -> None:
    names = ("one", "two", "three")
    for last in (3, 6):
        done = [making.commit(of(name, wanted(last=last))).result(30) for name in names]
        results = [one.result for one in done if isinstance(one, WindowsCommitted)]
        assert [one.name for one in results if one] == list(names)
        assert len({(one.status, one.payload, one.number) for one in results if one}) == 1
    assert Watched.runs == 2
    for name in names:
        assert len(Watched.opened) == 1, "somebody needs it"
        making.versions.forget(of(name, wanted()).spec.uid)
    assert not Watched.opened


def test_windows_of_panes_that_are_not_committed(making: Pooled, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what they would be if these were committed, in one record with them; in another term these
    panes are others, and nothing is left of the windows (protocol 5.11)."""
    monkeypatch.setattr(makes, "types_of", lambda fragment: decode(PANES[0].payload).schema)

    def joint(term: int, last: int, row: PaneCommit, *before: PaneCommit) -> list[WindowCommit]:
        piece = Piece(row.start, row.end, 1, row.counters, row.payload)
        flow, made = version(1).flows[0], [*PANES, *before, row]
        panes = CommitPanes(flow, row.start, row.end, (piece,), 0, 1, 1)
        windows = effect(version(1), last - 3, last, made)
        done = making.task(Draft(panes, 13, term, (windows,)))[1]()
        assert isinstance(done, Drafted)
        assert [one.done for one in done.windows] == [windows]
        kind, (_, *fields), rows = msgspec.msgpack.decode(done.record)
        assert kind == "JointCommit"
        assert PaneCommit(*fields).name == row.name
        return [WindowCommit(*fields) for _, *fields in rows]

    def apart(last: int, *rows: PaneCommit) -> WindowCommit:
        store = Store(":memory:")
        store.commit_panes(*PANES, *rows)
        finisher = Finisher(version(1).plan)
        made, new = made_windows(effect(version(1), last - 3, last, [*PANES, *rows]), store, finisher)
        finisher.close()
        store.close()
        assert new
        return made

    first, other = (commit(9, 1, 0, [(name, 3, 0.5, "x")]) for name in "ab")
    assert joint(1, 10, first) == [apart(10, first)]
    assert not making._store.pane_commits("flow", 9, 10)
    making._store.commit_panes(other)
    later = commit(10, 3, 0, [])
    (row,) = joint(2, 13, later, other)
    assert row.rows == apart(13, other, later).rows


def test_values_that_an_aggregate_has_not_made_are_told_whoever_makes_their_windows(
    making: Pooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that is no failure of a final function, which would be taken out of the job."""

    def run(self: Watched, groups: pa.Table, *beside: pa.Table) -> pa.Table:
        self.failure = "f.py:3: no"
        return Finisher.run(self, groups, *beside)

    monkeypatch.setattr(Watched, "run", run)
    monkeypatch.setattr(makes, "types_of", lambda fragment: decode(PANES[0].payload).schema)
    first = commit(9, 1, 0, [("a", 3, 0.5, "x")])
    panes = CommitPanes(
        version(1).flows[0], 9, 10, (Piece(9, 10, 1, first.counters, first.payload),), 0, 1, 1
    )
    joint = making.task(Draft(panes, 13, 1, (effect(version(1), 7, 10, [*PANES, first]),)))[1]()
    draft = making.task(Draft(wanted(2), 13, 1))[1]()
    assert isinstance(joint, Drafted)
    assert isinstance(draft, Drafted)
    made = [making.commit(of(name, wanted())).result(30) for name in ("one", "two")]
    for done in (*made, draft.done, *joint.windows):
        assert isinstance(done, WindowsCommitted)
        assert (done.failure, done.aggregate_failure) == ("", "f.py:3: no, on agent a")
        assert done.result is not None
        assert all(decode(done.result.status)["function_failed"].to_pylist())
    assert [told[:2] for told in making.unheard.failed] == [("aggregate", "f.py:3: no")] * 4
    assert {told[2] for told in making.unheard.failed} > {"one", "two"}


def test_what_equal_jobs_do_not_have_in_common(making: Pooled) -> None:
    """A job that is altered, or begins here, parts from the others."""
    work = wanted(last=6)
    assert alike(work) == alike(of("other", work))
    own = (
        replace(work, revised=(3, 4)),
        replace(work, until_us=work.last_us),
        replace(work, skipped_to=work.last_us),
        replace(work, landmarks=(0,)),
        replace(work, from_us=work.first_us - 1),
        replace(work, spec=planned(work.spec, replace(work.spec.plan, windows=()))),
    )
    assert [alike(one) for one in own] == [None] * len(own)
    others = (
        wanted(2, last=6),
        wanted(last=3),
        replace(work, coverage=tuple(replace(part, revision=1) for part in work.coverage)),
        replace(work, coverage=tuple(replace(part, flow="copy") for part in work.coverage)),
        replace(work, names=tuple(Named(one.flow, {0: ("id", "b")}) for one in work.names)),
    )
    assert alike(work) not in [alike(one) for one in others]
    making.commit(of("one", wanted(1))).result(30)
    making.commit(of("two", wanted(2))).result(30)
    assert Watched.runs == 2
