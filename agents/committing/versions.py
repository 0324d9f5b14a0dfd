"""What is kept of versions of jobs from one of their windows to the next, and what equal ones have in common.

What is kept of a *version* (prepared statements, and ``agents.committing.kept``) spares work and decides
nothing. It is one thread's at a time: who leads a home anew may still be at work on windows that it began in
the term before. Versions with equal plans, of whichever jobs, have in common what their windows have in
common (``agents.committing.kept.alike``), which is made once. One thread alone adds versions and lets them
go, so that none comes back with work that was waiting; their statements are closed at once, or by the thread
that is at work on them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Final

from agents.committing.kept import Kept, alike
from elf.job.effects import CommitWindows, SaveJob
from elf.job.ports import FinisherPort
from elf.job.spec import JobSpec
from elf.ql.plan import Plan

VERSIONS_MADE: Final = 2
"""Of a job: an old version makes its last windows while the new one makes its first."""
Finishing = Callable[[Plan], FinisherPort]
"""Prepares what runs a plan's final fragment."""


class Version:
    """What is kept of one version, or in ``common`` with all that have an equal plan."""

    def __init__(self, plan: Plan, finishing: Finishing, common: Version | None = None) -> None:
        self.plan = plan
        self.common = common
        self.users = 0
        """Versions that have this in common."""
        self._finishing = finishing
        self._lock = threading.Lock()
        self._finisher: FinisherPort | None = None
        self._kept = Kept()
        self._gone = False

    @contextlib.contextmanager
    def alone(self) -> Iterator[tuple[FinisherPort, Kept]]:
        """For one thread, while it makes windows."""
        try:
            with self._lock:
                if self._finisher is None:
                    self._finisher = self._finishing(self.plan)
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


class Versions:
    """Those whose windows one agent makes."""

    def __init__(self, finishing: Finishing) -> None:
        self._finishing = finishing
        self._versions: dict[tuple[str, int], Version] = {}
        self._common: dict[Plan, Version] = {}

    def maker(self, work: CommitWindows) -> Version:
        """What these windows are made with: the version's own, or what equal ones have in common."""
        version = self._version(work.spec)
        if version.common is None or alike(work) is None:
            return version
        version.rest()
        return version.common

    def saved(self, job: SaveJob) -> None:
        """Versions of a job that make no window any more need nothing kept."""
        live = {v.spec.version for v in job.versions if v.state == "committed" and job.state != "dropped"}
        for number in self.numbers(job.spec.uid):
            if number not in live:
                self._let_go(job.spec.uid, number)

    def forget(self, uid: str) -> None:
        """The home of a job is here no more."""
        for number in self.numbers(uid):
            self._let_go(uid, number)

    def numbers(self, uid: str) -> list[int]:
        """The versions of a job of which something is kept."""
        return sorted(number for job, number in self._versions if job == uid)

    def close(self) -> None:
        """When no thread makes windows any more."""
        for uid, number in list(self._versions):
            self._let_go(uid, number)

    def _version(self, spec: JobSpec) -> Version:
        key = (spec.uid, spec.version)
        found = self._versions.get(key)
        if found is None:
            for number in self.numbers(spec.uid)[:-VERSIONS_MADE]:
                self._let_go(spec.uid, number)
            common = self._common.setdefault(spec.plan, Version(spec.plan, self._finishing))
            common.users += 1
            found = self._versions[key] = Version(spec.plan, self._finishing, common)
        return found

    def _let_go(self, uid: str, number: int) -> None:
        version = self._versions.pop((uid, number))
        version.let_go()
        if version.common is not None:
            version.common.users -= 1
            if not version.common.users:
                self._common.pop(version.common.plan).let_go()
