"""The making of windows for the masters on an agent, and of panes for its roots: on which threads, and what
is kept in between.

What is kept of a *version* of a job from one of its windows to the next (prepared statements, and
``agents.committing.kept``) spares work and decides nothing. It is one thread's at a time: who leads a home
anew may still be at work on windows that it began in the term before. Versions with equal plans, of whichever
jobs, have in common what their windows have in common (``agents.committing.kept.alike``), which is made once.
The driver's loop alone adds versions and lets them go, so that none comes back with work that was waiting;
their statements are closed at once, or by the thread that is at work on them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from agents.committing import drafts, panecommits, windowcommits
from agents.committing.early import early_windows
from agents.committing.finals import FinalFunction, running
from agents.committing.finals import why_not as final_fails
from agents.committing.kept import Kept, alike
from agents.committing.reducing import ReduceFunction, reducing
from agents.committing.reducing import why_not as reduce_fails
from agents.disk.store import Store, StoreError
from agents.lanes.streams import FunctionsAt
from agents.metrics import Metrics
from elf.errors import ElfBug, ElfError
from elf.job.effects import CommitPanes, CommitWindows, MakeEarly, SaveJob, TryFunctions
from elf.job.events import EarlyMade, Failure, FunctionsTried, PanesCommitted, WindowsCommitted
from elf.job.home.port import Draft, Drafted
from elf.job.log.membership import Identity
from elf.job.spec import JobSpec
from elf.ql.plan import Function, Plan

if TYPE_CHECKING:  # DuckDB, as in agents.lanes.streams
    from agents.lanes.engine import Finisher

VERSIONS_MADE: Final = 2
"""Of a job: an old version makes its last windows while the new one makes its first."""
USERS_AT_ONCE: Final = 4
"""Commits with reduce or final functions, which may take their time: a pool of their own."""


class _Version:
    """What is kept of one version, or in ``common`` with all that have an equal plan."""

    def __init__(self, plan: Plan, common: _Version | None = None) -> None:
        self.plan = plan
        self.common = common
        self.users = 0
        """Versions that have this in common."""
        self._lock = threading.Lock()
        self._finisher: Finisher | None = None
        self._kept = Kept()
        self._gone = False

    @contextlib.contextmanager
    def alone(self) -> Iterator[tuple[Finisher, Kept]]:
        """For one thread, while it makes windows."""
        from agents.lanes.engine import Finisher

        try:
            with self._lock:
                if self._finisher is None:
                    self._finisher = Finisher.of(self.plan)
                yield self._finisher, self._kept
        finally:
            if self._gone:
                self._close()

    def let_go(self) -> None:
        self._gone = True
        self._close()

    def rest(self) -> None:
        """It is not needed now, while windows are made in common."""
        self._close()
        self._kept = Kept()

    def _close(self) -> None:
        """Unless a thread is at work, which does it then."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._finisher is not None:
                self._finisher.close()
                self._finisher = None
        finally:
            self._lock.release()


class Making:
    """See the module's docstring. ``pool`` makes panes and windows without functions; its owner ends it."""

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
        self._versions: dict[tuple[str, int], _Version] = {}
        self._common: dict[Plan, _Version] = {}
        self._log = structlog.get_logger().bind(agent=me.name, address=me.address)

    # -- what is wanted --------------------------------------------------------------------------------------

    def commit(self, effect: CommitWindows) -> Future[WindowsCommitted | Failure]:
        return self._pool.submit(self._commit, effect, self._maker(effect))

    def commit_panes(self, effect: CommitPanes) -> Future[PanesCommitted]:
        return self._pool_of(_reduce_of(effect)).submit(self._commit_panes, effect)

    def draft_panes(self, effect: Draft, work: CommitPanes) -> Future[Drafted]:
        """``work``: of the effect."""
        return self._pool_of(_reduce_of(work)).submit(self._draft_panes, effect, work)

    def draft(self, effect: Draft, work: CommitWindows) -> Future[Drafted]:
        """``work``: of the effect."""
        return self._pool_of(work.spec.plan.final).submit(self._draft, effect, work, self._maker(work))

    def early(self, effect: MakeEarly) -> Future[EarlyMade]:
        return self._pool_of(effect.committed.spec.plan.final).submit(self._early, effect)

    def try_functions(self, effect: TryFunctions) -> Future[FunctionsTried]:
        return self._users.submit(self._try_functions, effect)

    def saved(self, job: SaveJob) -> None:
        """Versions of a job that make no window any more need nothing kept."""
        live = {v.spec.version for v in job.versions if v.state == "committed" and job.state != "dropped"}
        for number in self.versions(job.spec.uid):
            if number not in live:
                self._let_go(job.spec.uid, number)

    def forget(self, uid: str) -> None:
        """The home of a job is here no more."""
        for number in self.versions(uid):
            self._let_go(uid, number)

    def versions(self, uid: str) -> list[int]:
        """The versions of a job of which something is kept."""
        return sorted(number for job, number in self._versions if job == uid)

    def stop(self) -> None:
        """Wait for users' functions, on a thread that may: nobody asks for more."""
        self._stopping.set()
        self._users.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """When no thread makes windows any more."""
        for uid, number in list(self._versions):
            self._let_go(uid, number)

    # -- on the loop -----------------------------------------------------------------------------------------

    def _maker(self, work: CommitWindows) -> _Version:
        """What these windows are made with: the version's own, or what equal ones have in common."""
        version = self._version(work.spec)
        if version.common is None or alike(work) is None:
            return version
        version.rest()
        return version.common

    def _version(self, spec: JobSpec) -> _Version:
        key = (spec.uid, spec.version)
        found = self._versions.get(key)
        if found is None:
            for number in self.versions(spec.uid)[:-VERSIONS_MADE]:
                self._let_go(spec.uid, number)
            common = self._common.setdefault(spec.plan, _Version(spec.plan))
            common.users += 1
            found = self._versions[key] = _Version(spec.plan, common)
        return found

    def _let_go(self, uid: str, number: int) -> None:
        version = self._versions.pop((uid, number))
        version.let_go()
        if version.common is not None:
            version.common.users -= 1
            if not version.common.users:
                self._common.pop(version.common.plan).let_go()

    def _pool_of(self, function: Function | None) -> ThreadPoolExecutor:
        return self._pool if function is None else self._users

    # -- on threads ------------------------------------------------------------------------------------------

    def _commit(self, effect: CommitWindows, version: _Version) -> WindowsCommitted | Failure:
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
            done = panecommits.commit_panes(effect, self._store, reduce)
        return replace(done, failure=self._failed(reduce))

    def _draft_panes(self, effect: Draft, work: CommitPanes) -> Drafted:
        with self._reduce(work) as reduce:
            done = drafts.draft(effect, self._store, None, self._me.address, None, reduces=reduce)
        return replace(done, failure=self._failed(reduce))

    def _failed(self, reduce: ReduceFunction | None) -> str:
        failure = reduce.failure if reduce is not None else ""
        if failure:
            self._log.error("a reduce function has failed", reason=failure)
        return failure

    def _draft(self, effect: Draft, work: CommitWindows, version: _Version) -> Drafted:
        try:
            with version.alone() as (finisher, kept), self._final(work.spec) as final:
                done = drafts.draft(effect, self._store, finisher, self._me.address, kept, final)
        except StoreError:
            raise
        except ElfError as error:
            return Drafted(work, b"", error=self._not_finished(work, error))
        self._metrics.windows_committed()
        if final is not None and final.failure:
            self._log.error("a final function has failed", job=work.spec.name, reason=final.failure)
            return replace(done, failure=f"{final.failure}, on agent {self._me.name}")
        return done

    def _not_finished(self, effect: CommitWindows, error: ElfError) -> str:
        self._log.error("a window cannot be finished", job=effect.spec.name, reason=str(error))
        return f"job {effect.spec.name}: a window cannot be finished: {error}"

    def _early(self, effect: MakeEarly) -> EarlyMade:
        from agents.lanes.engine import Finisher

        spec = effect.committed.spec
        try:
            finisher = Finisher.of(spec.plan)
            try:
                with self._final(spec) as final:
                    return early_windows(effect, self._store, finisher, self._me.address, final)
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


def _reduce_of(work: CommitPanes) -> Function | None:
    reduce = work.flow.fragment.reduce
    return None if reduce is None or work.plain else reduce.function
