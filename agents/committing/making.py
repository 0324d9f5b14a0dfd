"""The making of windows for the masters on an agent, and of panes for its roots: on which threads. What is
kept in between (``agents.committing.kept``) is the loop's to add and to let go.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import structlog

from agents.committing import panecommits, windowcommits
from agents.committing.early import early_windows
from agents.committing.finals import FinalFunction, running
from agents.committing.finals import why_not as final_fails
from agents.committing.kept import Version, Versions
from agents.committing.reducing import ReduceFunction, reducing
from agents.committing.reducing import why_not as reduce_fails
from agents.disk.store import Store, StoreError
from agents.lanes.streams import FunctionsAt
from agents.metrics import Metrics
from elf.errors import ElfBug, ElfError
from elf.job.effects import Combine, CommitPanes, CommitWindows, MakeEarly, TryFunctions
from elf.job.events import Combined, EarlyMade, Failure, FunctionsTried, PanesCommitted, WindowsCommitted
from elf.job.home.port import Draft, Drafted
from elf.job.log.membership import Identity
from elf.job.spec import JobSpec
from elf.ql.plan import Fragment, Function, Plan

if TYPE_CHECKING:  # DuckDB, as in agents.lanes.streams
    from agents.lanes.engine import Finisher

USERS_AT_ONCE: Final = 4
"""Commits with reduce or final functions, which may take their time: a pool of their own."""


class Making:
    """See the module's docstring. ``pool`` makes panes and windows without functions; its owner ends it.
    ``wanted`` may be cleared to hold back windows that are for readers alone."""

    def __init__(
        self,
        me: Identity,
        store: Store,
        pool: ThreadPoolExecutor,
        metrics: Metrics,
        finals: FunctionsAt | None = None,
    ) -> None:
        self._me = me
        self._store = store
        self._pool = pool
        self._users = ThreadPoolExecutor(USERS_AT_ONCE, thread_name_prefix="users")
        self._metrics = metrics
        self._finals = finals
        self._stopping = threading.Event()
        self.wanted = threading.Event()
        self.wanted.set()
        self.versions = Versions(_finisher)
        self._log = structlog.get_logger().bind(agent=me.name, address=me.address)

    # -- what is wanted --------------------------------------------------------------------------------------

    def commit(self, effect: CommitWindows) -> Future[WindowsCommitted | Failure]:
        return self._pool.submit(self._commit, effect, self.versions.maker(effect))

    def combine(self, effect: Combine) -> Future[Combined]:
        return self._pool.submit(panecommits.combine, effect, _types)

    def commit_panes(self, effect: CommitPanes) -> Future[PanesCommitted]:
        return self._pool_of(_reduce_of(effect)).submit(self._commit_panes, effect)

    def draft_panes(self, effect: Draft, work: CommitPanes) -> Future[Drafted]:
        """``work``: of the effect."""
        return self._pool_of(_reduce_of(work)).submit(self._draft_panes, effect, work)

    def draft(self, work: CommitWindows) -> Future[Drafted]:
        version = self.versions.maker(work)
        return self._pool_of(work.spec.plan.final).submit(self._draft, work, version)

    def early(self, effect: MakeEarly) -> Future[EarlyMade]:
        return self._pool_of(effect.committed.spec.plan.final).submit(self._early, effect)

    def try_functions(self, effect: TryFunctions) -> Future[FunctionsTried]:
        return self._users.submit(self._try_functions, effect)

    def stop(self) -> None:
        """Wait for users' functions, on a thread that may: nobody asks for more."""
        self._stopping.set()
        self.wanted.set()
        self._users.shutdown(wait=True, cancel_futures=True)

    def _pool_of(self, function: Function | None) -> ThreadPoolExecutor:
        return self._pool if function is None else self._users

    # -- on threads ------------------------------------------------------------------------------------------

    def _commit(self, effect: CommitWindows, version: Version) -> WindowsCommitted | Failure:
        self.wanted.wait()
        try:
            with version.alone() as (finisher, kept):
                done = windowcommits.commit_windows(effect, self._store, finisher, self._me.address, kept)
        except StoreError:  # the disk's fault, not the window's
            raise
        except ElfError as error:
            return Failure(effect.spec.uid, self._not_finished(effect, error), effect.spec.version)
        self._metrics.windows_committed()
        return done

    def _commit_panes(self, effect: CommitPanes) -> PanesCommitted:
        with self._reduce(effect) as reduce:
            done = panecommits.commit_panes(effect, self._store, reduce, _types)
        self._has_failed(done)
        return done

    def _draft_panes(self, effect: Draft, work: CommitPanes) -> Drafted:
        with self._reduce(work) as reduce:
            drafted = panecommits.draft_panes(effect, work, self._store, reduce, _types)
        self._has_failed(drafted.done)
        return drafted

    def _has_failed(self, done: PanesCommitted | WindowsCommitted | Failure) -> None:
        if isinstance(done, PanesCommitted) and done.failure:
            self._log.error("a reduce function has failed", reason=done.failure)

    def _draft(self, work: CommitWindows, version: Version) -> Drafted:
        try:
            with version.alone() as (finisher, kept), self._final(work.spec) as final:
                me = self._me.address
                drafted = windowcommits.draft_windows(work, self._store, finisher, me, kept, final)
        except StoreError:
            raise
        except ElfError as error:
            text = self._not_finished(work, error)
            return Drafted(work, Failure(work.spec.uid, text, work.spec.version))
        self._metrics.windows_committed()
        done = drafted.done
        if isinstance(done, WindowsCommitted) and done.failure:
            self._log.error("a final function has failed", job=work.spec.name, reason=done.failure)
            failure = f"{done.failure}, on agent {self._me.name}"
            return replace(drafted, done=replace(done, failure=failure))
        return drafted

    def _not_finished(self, effect: CommitWindows, error: ElfError) -> str:
        self._log.error("a window cannot be finished", job=effect.spec.name, reason=str(error))
        return f"job {effect.spec.name}: a window cannot be finished: {error}"

    def _early(self, effect: MakeEarly) -> EarlyMade:
        spec = effect.committed.spec
        try:
            finisher = _finisher(spec.plan)
            try:
                with self._final(spec) as final:
                    return early_windows(effect, self._store, finisher, self._me.address, final, _types)
            finally:
                finisher.close()
        except ElfError as error:  # the windows themselves will say so when they are complete
            self._log.warning("no early results", job=spec.name, reason=str(error))
            return EarlyMade(spec.uid, None)

    def _try_functions(self, effect: TryFunctions) -> FunctionsTried:
        try:
            at = self._functions_at()
            error = reduce_fails(effect.plan, effect.flows, self._store, at)
            error = error or final_fails(effect.plan, effect.request.uid, self._store, at)
        except ElfError as failed:
            error = str(failed)
        where = f"{error}, on its master {self._me.name}" if error else ""
        return FunctionsTried(effect.request, where)

    def _final(self, spec: JobSpec) -> contextlib.AbstractContextManager[FinalFunction | None]:
        """The final function of a version, while windows are made."""
        function = spec.plan.final
        if function is None:
            return contextlib.nullcontext()
        return running(function, spec.version, self._functions_at(), self._stopping.is_set)

    def _reduce(self, work: CommitPanes) -> contextlib.AbstractContextManager[ReduceFunction | None]:
        """The reduce function of a flow, while panes are committed."""
        if _reduce_of(work) is None:
            return contextlib.nullcontext()
        return reducing(work.flow.fragment, self._functions_at(), self._stopping.is_set)

    def _functions_at(self) -> FunctionsAt:
        if self._finals is None:
            raise ElfBug("a user's function on an agent that runs none")
        return self._finals


def _types(fragment: Fragment) -> pa.Schema:
    from agents.lanes.engine import types_of

    return types_of(fragment)


def _finisher(plan: Plan) -> Finisher:
    from agents.lanes.engine import Finisher

    return Finisher.of(plan)


def _reduce_of(work: CommitPanes) -> Function | None:
    reduce = work.flow.fragment.reduce
    return None if reduce is None or work.plain else reduce.function
