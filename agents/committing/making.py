"""The making of windows for the masters on an agent, and of panes for its roots: the work itself, which any
thread may do, and on which queue it belongs. What is kept in between (``agents.committing.kept``) is the
loop's to add and to let go.

Early results are windows that are not complete, out of committed and of open panes
(``elf.job.group.subscribers``).
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import pyarrow as pa

from agents.committing import panecommits, windowcommits
from agents.committing.committed import WithPanes
from agents.committing.finals import FinalFunction, flagged, running
from agents.committing.finals import why_not as final_fails
from agents.committing.kept import Version, Versions, bounded
from agents.committing.opening import Types, opened, opens
from agents.committing.panecommits import MadePanes, Makers, Merge
from agents.committing.panetables import joined, merged, merged_counters, opened_counters, opened_groups
from agents.committing.promised import Moment
from agents.committing.reducing import ReduceFunction, reducing
from agents.committing.reducing import why_not as reduce_fails
from agents.committing.sides import finished, staged
from agents.committing.staging import RangeStages, Statement
from agents.committing.status import status_of_windows
from agents.committing.warming import warm
from agents.committing.windowcommits import Treat, drafted_windows, names_of, pieces_of, treated
from agents.disk.store import Store, StoreError
from agents.ports import Queue, Reports
from agents.tasks.direct import types_of
from agents.tasks.streams import Call, FunctionsAt, Running
from elf.batch import WRONG, decode, encode
from elf.errors import ElfBug, ElfError, PeerError, UserError
from elf.fields import replace
from elf.job.assembly.windows import Assembly
from elf.job.catalog.membership import Identity
from elf.job.commits import WindowCommit
from elf.job.contributions import Piece
from elf.job.counters import COUNTER_STATES
from elf.job.effects import (
    Combine,
    CommitPanes,
    CommitWindows,
    MakeEarly,
    MakeReady,
    TryAggregate,
    TryFunctions,
)
from elf.job.events import (
    Combined,
    EarlyMade,
    Failure,
    FunctionsTried,
    MadeReady,
    Offloaded,
    PanesCommitted,
    WindowsCommitted,
)
from elf.job.group.port import Draft, Drafted
from elf.job.group.records import JointCommit
from elf.job.group.records import encode as encode_record
from elf.job.ports import FinisherPort
from elf.job.spec import JobSpec
from elf.ql.own import OwnAggregate
from elf.ql.plan import Fragment, Function, Plan
from elf.wire.clients import WindowResult

Wanted = Combine | CommitPanes | CommitWindows | MakeEarly | MakeReady | TryFunctions | TryAggregate | Draft
Made = (
    Combined
    | PanesCommitted
    | WindowsCommitted
    | EarlyMade
    | MadeReady
    | FunctionsTried
    | Offloaded
    | Drafted
    | Failure
)


class Functions(Running, Protocol):
    """What panes and windows are made with: statements, and where users' functions run. ``where`` is said of
    a final function that has failed."""

    where: str

    def types(self, fragment: Fragment) -> pa.Schema:
        """The columns of a fragment's groups."""

    def finisher(self, plan: Plan) -> FinisherPort: ...

    def stages(self, fragment: Fragment, groups: pa.Table) -> pa.Table:
        """What a fragment's stage makes of groups of panes with their bounds
        (``agents.committing.staging``)."""

    def merging(self, fragment: Fragment) -> AbstractContextManager[Merge | None]:
        """What merges the states of aggregates of people's own, while groups of the fragment are merged."""

    def why_not(self, effect: TryFunctions, store: Store) -> str:
        """Why a job cannot have the plan's functions; empty: it can."""

    def broken_law(self, effect: TryAggregate) -> str:
        """The law that is broken; empty: none."""


class Making:
    """See the module's docstring. ``wanted`` may be cleared to hold back windows that are for readers
    alone."""

    def __init__(
        self,
        me: Identity,
        store: Store,
        functions: Functions,
        reports: Reports,
        now_us: Callable[[], int],
    ) -> None:
        self._now_us = now_us
        self._me = me
        self._store = store
        self._functions = functions
        self._reports = reports
        self._stopping = threading.Event()
        self.wanted = threading.Event()
        self.wanted.set()
        self.versions = Versions(functions.finisher)

    def task(self, effect: Wanted) -> tuple[Queue, Callable[[], Made]]:
        """What is to be done for an effect, and where."""
        match effect:
            case Combine():
                return _queue_of(effect.flow.fragment), partial(self._combine, effect)
            case MakeEarly():
                return _queue_to_finish(effect.committed.spec.plan), partial(self._early, effect)
            case MakeReady():
                plan, version = effect.spec.plan, self.versions.own(effect.spec)
                return _queue_to_finish(plan), partial(self._make_ready, effect, version)
            case TryFunctions():
                return "functions", partial(self._try_functions, effect)
            case TryAggregate():
                return "functions", partial(self._try_aggregate, effect)
            case CommitWindows():
                queue = _queue_to_finish(effect.spec.plan, "commit")
                return queue, partial(self._commit, effect, self.versions.maker(effect))
            case CommitPanes():
                self._reports.panes_committed()
                queue = _queue_of(effect.flow.fragment, _queue(_reduce_of(effect), "commit"))
                return queue, partial(self._commit_panes, effect)
            case Draft(work=CommitWindows() as work):
                version = self.versions.maker(work)
                return _queue_to_finish(work.spec.plan), partial(self._draft, effect, work, version)
            case Draft(work=CommitPanes() as work):
                self._reports.panes_committed()
                windows = [(one, self.versions.own(one.spec)) for one in effect.windows]
                queue = _queue_of(work.flow.fragment, _queue(_reduce_of(work)))
                return queue, partial(self._draft_panes, effect, work, windows)
        raise TypeError(f"nothing is made for {effect!r}")

    def stop(self) -> None:
        """Nobody asks for more."""
        self._stopping.set()
        self.wanted.set()

    # -- the work --------------------------------------------------------------------------------------------

    def _combine(self, effect: Combine) -> Combined:
        with self._functions.merging(effect.flow.fragment) as merge:
            return panecommits.combine(effect, self._functions.types, merge)

    def _commit(self, effect: CommitWindows, version: Version) -> WindowsCommitted | Failure:
        self.wanted.wait()
        try:
            with version.alone() as (finisher, kept):
                done = windowcommits.commit_windows(
                    effect, self._store, finisher, self._me.address, kept, self._now_us
                )
        except StoreError:  # the disk's fault, not the window's
            raise
        except (ElfError, *WRONG) as error:
            return Failure(effect.spec.uid, self._not_made(effect, error), effect.spec.version)
        return self._made(done)

    def _commit_panes(self, effect: CommitPanes) -> PanesCommitted:
        with self._makers(effect) as makers:
            done = panecommits.commit_panes(effect, self._store, makers)
        self._has_failed(done)
        return done

    def _draft_panes(
        self, effect: Draft, work: CommitPanes, windows: Sequence[tuple[CommitWindows, Version]]
    ) -> Drafted:
        with self._makers(work) as makers:
            panes, done = panecommits.made_panes(work, self._store, effect.seq, makers)
        self._has_failed(done)
        if panes is None:
            return Drafted(work, done)
        made = self._completed(panes, windows, effect)
        both = JointCommit(panes.row, tuple(row for row, _ in made)) if made else panes.row
        return Drafted(work, done, encode_record(both), tuple(said for _, said in made))

    def _completed(
        self, panes: MadePanes, windows: Sequence[tuple[CommitWindows, Version]], effect: Draft
    ) -> list[tuple[WindowCommit, WindowsCommitted]]:
        """The windows that panes complete. Those that cannot be made are tried again when these are
        committed, and it is said then why not."""
        made: list[tuple[WindowCommit, WindowsCommitted]] = []
        committed, known = WithPanes(self._store, panes.row), panes.known
        for work, version in windows:
            try:
                with version.alone(effect.term) as (finisher, kept):
                    row, done = drafted_windows(
                        work,
                        committed,
                        finisher,
                        self._me.address,
                        kept,
                        known=known,
                        at=self._at(effect),
                    )
            except StoreError:
                raise
            except (ElfError, *WRONG):
                continue
            if row is not None:
                made.append((row, self._made(done)))
        return made

    @contextlib.contextmanager
    def _makers(self, work: CommitPanes) -> Iterator[Makers]:
        functions = self._functions
        with self._reduce(work) as reduce, functions.merging(work.flow.fragment) as merge:
            yield Makers(reduce, functions.types, functions.stages, merge)

    def _has_failed(self, done: PanesCommitted) -> None:
        if done.failure:
            self._reports.function_failed("reduce", done.failure)
        if done.unstaged:
            self._reports.function_failed("stage", done.unstaged)

    def _made(self, done: WindowsCommitted) -> WindowsCommitted:
        """Windows are made. Of functions that have failed on them people hear here, and their job hears
        where that was."""
        self._reports.windows_committed()
        job, where = done.done.spec.name, self._functions.where
        if done.failure:
            self._reports.function_failed("final", done.failure, job)
            done = replace(done, failure=done.failure + where)
        if done.aggregate_failure:
            self._reports.function_failed("aggregate", done.aggregate_failure, job)
            done = replace(done, aggregate_failure=done.aggregate_failure + where)
        return done

    def _at(self, effect: Draft) -> Moment:
        """When what is made now for a draft is committed, as far as the last commits tell."""
        return lambda: self._now_us() + 1000 * effect.commit_ms

    def _draft(self, effect: Draft, work: CommitWindows, version: Version) -> Drafted:
        try:
            with version.alone(effect.term) as (finisher, kept), self._final(work.spec) as final:
                row, done = drafted_windows(
                    work, self._store, finisher, self._me.address, kept, final, at=self._at(effect)
                )
        except StoreError:
            raise
        except (ElfError, *WRONG) as error:
            return Drafted(work, Failure(work.spec.uid, self._not_made(work, error), work.spec.version))
        return Drafted(work, self._made(done), b"" if row is None else encode_record(row))

    def _not_made(self, effect: CommitWindows, error: Exception) -> str:
        """A window cannot be made of what peers have sent, or by what the job does with it."""
        self._reports.not_made(effect.spec.name, error, within=(effect.first_us, effect.last_us))
        return f"job {effect.spec.name}: a window cannot be finished: {error}"

    def _early(self, effect: MakeEarly) -> EarlyMade:
        spec = effect.committed.spec
        try:
            finisher = self._functions.finisher(spec.plan)
            try:
                with self._final(spec) as final:
                    return early_windows(
                        effect, self._store, finisher, self._me.address, final, self._functions.types
                    )
            finally:
                finisher.close()
        except (ElfError, *WRONG) as error:  # the windows themselves will say so when they are complete
            self._reports.not_made(spec.name, error, early=True)
            return EarlyMade(spec.uid, None)

    def _make_ready(self, effect: MakeReady, version: Version) -> MadeReady:
        made_us = warm(version, effect.spec.uid, effect.spec.version, self._store)
        return MadeReady(effect.asker, effect.spec.uid, made_us)

    def _try_functions(self, effect: TryFunctions) -> FunctionsTried:
        try:
            error = self._functions.why_not(effect, self._store)
        except ElfError as failed:
            error = str(failed)
        where = f"{error}, on its master {self._me.name}" if error else ""
        return FunctionsTried(effect.request, where)

    def _try_aggregate(self, effect: TryAggregate) -> Offloaded:
        try:
            return Offloaded(effect.id, self._functions.broken_law(effect), None)
        except ElfError as error:
            return Offloaded(effect.id, None, UserError(f"{error}{self._functions.where}"))

    def _final(self, spec: JobSpec) -> AbstractContextManager[FinalFunction | None]:
        """The final function of a version, while windows are made."""
        function = spec.plan.final
        if function is None:
            return contextlib.nullcontext()
        return running(function, spec.version, self._functions, self._stopping.is_set)

    def _reduce(self, work: CommitPanes) -> AbstractContextManager[ReduceFunction | None]:
        """The reduce function of a flow, while panes are committed."""
        if _reduce_of(work) is None:
            return contextlib.nullcontext()
        return reducing(work.flow.fragment, self._functions, self._stopping.is_set)


class Sandboxed:
    """Functions of an agent: DuckDB's statements, and users' functions in processes of their own. ``at``:
    None on an agent that runs none."""

    def __init__(self, agent: str, at: FunctionsAt | None) -> None:
        self.where = f", on agent {agent}"
        self._given = at
        self._slow = set[OwnAggregate]()
        self.stages = RangeStages(_statement)

    def types(self, fragment: Fragment) -> pa.Schema:
        return types_of(fragment)

    def finisher(self, plan: Plan) -> FinisherPort:
        from agents.tasks.finishing import finisher_of

        if any(side.fragment.owns for side in plan.sides):
            from agents.tasks.aggregating import OwnFinisher

            return OwnFinisher(plan, self._at())
        return finisher_of(plan)

    @contextlib.contextmanager
    def merging(self, fragment: Fragment) -> Iterator[Merge | None]:
        if not fragment.owns:  # what merges is not even imported
            yield None
            return
        from agents.tasks.aggregating import merging

        at = self._at()
        with merging(fragment, at, at.log, self._slow) as merge:
            yield merge

    def running(self, function: Function, version: int = 1) -> AbstractContextManager[Call]:
        return self._at().running(function, version)

    def why_not(self, effect: TryFunctions, store: Store) -> str:
        error = reduce_fails(effect.plan, effect.flows, store, self)
        return error or final_fails(effect.plan, effect.request.uid, store, self)

    def broken_law(self, effect: TryAggregate) -> str:
        from agents.tasks.aggregating import broken_law

        rows = decode(effect.rows)
        columns = [column.combine_chunks() for column in rows.columns]
        return broken_law(effect.own, columns, self._at())

    def _at(self) -> FunctionsAt:
        if self._given is None:
            raise ElfBug("a user's function on an agent that runs none")
        return self._given


def _statement(sql: str) -> Statement:
    from agents.tasks.engine import OverGroups  # DuckDB, as in agents.tasks.streams

    return OverGroups(sql)


def _queue(function: Function | None, otherwise: Queue = "compute") -> Queue:
    return otherwise if function is None else "functions"


def _queue_of(fragment: Fragment, otherwise: Queue = "compute") -> Queue:
    return "functions" if fragment.owns else otherwise


def _queue_to_finish(plan: Plan, otherwise: Queue = "compute") -> Queue:
    return "functions" if any(side.fragment.owns for side in plan.sides) else _queue(plan.final, otherwise)


def _reduce_of(work: CommitPanes) -> Function | None:
    reduce = work.flow.fragment.reduce
    return None if reduce is None or work.plain else reduce.function


def early_windows(
    effect: MakeEarly,
    store: Store,
    finisher: FinisherPort,
    master: str,
    treat: Treat | None = None,
    types: Types | None = None,
) -> EarlyMade:
    """Make them, and store nothing. ``treat``: the final function of the version; ``types``: how columns of
    open panes are to be. Whose panes cannot be opened is missing (``agents.committing.opening``)."""
    base, plan = effect.committed, effect.committed.spec.plan
    pane_us, calendar = plan.fragment.pane_us, base.calendar
    start = bounded(calendar.needs_from(base.first_us), pane_us)
    below = pieces_of(base, store, start, bounded(base.last_us, pane_us))
    keys, whole = ("_pane", *plan.fragment.keys), effect.whole
    try:
        counter_tables, tables = opened(plan.fragment, effect.pieces, types)
    except (PeerError, *WRONG):
        bad = [piece for piece in effect.pieces if not opens(plan.fragment, piece, types)]
        good = [piece for piece in effect.pieces if piece not in bad]
        whole = _without(effect, _members(bad))
        counter_tables, tables = opened(plan.fragment, good, types)
    groups = merged([*opened_groups(below), *tables], keys, plan.fragment.states)
    counters = merged_counters([*opened_counters(below), *counter_tables], COUNTER_STATES)
    if counters is None:
        return EarlyMade(base.spec.uid, None)
    assembly = Assembly(plan, calendar)
    groups = staged(plan, groups, calendar.needs_from(base.first_us), base.last_us, finisher)
    rows = finished(assembly.windows(base.first_us, base.last_us, groups), finisher.run)
    spans = assembly.calendar.holding(counters["_pane"].to_numpy(), base.first_us, base.last_us)
    status = status_of_windows(whole, spans, names_of(base, store), joined([counters]))
    if finisher.failure:
        status = flagged(status, finisher.failed)
    status, rows = treated(base.spec, status, rows, treat)
    result = WindowResult(
        job=base.spec.uid,
        name=base.spec.name,
        version=base.spec.version,
        master=master,
        first_us=base.first_us,
        last_us=base.last_us,
        revision=0,
        status=encode(status),
        payload=encode(rows),
        early=effect.number,
    )
    return EarlyMade(base.spec.uid, result)


def _members(pieces: Sequence[Piece]) -> int:
    return functools.reduce(operator.or_, (piece.members for piece in pieces), 0)


def _without(effect: MakeEarly, members: int) -> CommitWindows:
    """These members have reported no open panes."""
    committed = effect.committed.coverage
    still = (
        replace(one, reported=one.reported & ~members) for one in effect.whole.coverage[len(committed) :]
    )
    return replace(effect.whole, coverage=(*committed, *still))
