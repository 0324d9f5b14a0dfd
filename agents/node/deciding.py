"""What changes of jobs by itself: where their groups are (protocol 5.14), how many trees they have (5.15),
and how far apart the looks are for what ends their panes (5.17).

Three planners propose, in this order: ``agents.node.scaling``, ``agents.node.promises``, and, where
``cluster.balance`` is set, ``agents.node.moves``. The leader of the catalog log's voters asks them every
period. Which jobs may change at all is said in one place, ``elf.planning.pacing``, from the log's own
decisions: here is nothing that the next leader would not know. A decision is an entry of the log, with its
reasons; the leader of the job's group carries it out, once, if it hears of it soon.

States: none but when to look next, and what was heard of loads (``agents.node.balancing``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from agents.node import moves, promises, scaling
from agents.node.balancing import Loads
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import AssignJobGroup, DecidePause, DecideTrees, JobGroupAssigned
from elf.job.spec import job_of
from elf.planning.balance import Load
from elf.planning.pacing import Change, Pace, Turn, paced

AHEAD_MS: Final = 60_000
"""A decision from further in the future is of one whose clock was wrong. It holds its own job, of which
nothing older becomes an entry, and not the others."""

Proposed = AssignJobGroup | DecideTrees | DecidePause


class Deciding:
    """As the leader of the voters."""

    def __init__(self, log: CatalogLog, loads: Loads, pace: Pace | None) -> None:
        """``pace``: None: no job moves by itself."""
        self.pace = pace
        self._log = log
        self._loads = loads
        self._next_ms = 0

    def decide(self, now_ms: int) -> tuple[Proposed, ...]:
        """What is due now: at most one change of a job."""
        if now_ms < self._next_ms:
            return ()
        pace = self.pace or Pace()
        self._next_ms = now_ms + pace.period_ms
        turn = self._turn(pace, now_ms)
        if not turn.due:
            return ()
        said = self._loads.said(now_ms)
        free = [spec for spec in self._log.jobs() if turn.may(spec.uid, spec.uid) and self._is_free(spec.uid)]
        proposed: Iterable[Proposed] = chain(
            scaling.proposed(self._log, free, said, now_ms),
            promises.proposed(self._log, free, said, now_ms),
            () if self.pace is None else moves.proposed(self._settled(pace, now_ms), pace, turn, now_ms),
        )
        found: dict[str, Proposed] = {}
        for one in proposed:
            found.setdefault(job_of(one.uid), one)
        return tuple(found.values())[: turn.room]

    def _settled(self, pace: Pace, now_ms: int) -> dict[str, Load]:
        """What agents do, but for those to which a job has just gone: what that took them is no load."""
        moved = (one for one in self._log.assignments if isinstance(one, JobGroupAssigned))
        rest = {one.target for one in moved if 0 <= now_ms - one.at_ms < pace.rest_ms}
        return {at: load for at, load in self._loads.loads(now_ms).items() if at not in rest}

    def _turn(self, pace: Pace, now_ms: int) -> Turn:
        decided = list(self._log.assignments)
        changing = {job_of(one.uid) for one in decided if one.at_ms - now_ms > AHEAD_MS}
        changing |= {spec.uid for spec in self._log.jobs() if self._is_changing(spec.uid)}
        changes = (
            Change(job_of(one.uid), one.uid, one.at_ms) for one in decided if one.at_ms - now_ms <= AHEAD_MS
        )
        return paced(pace, changes, changing, now_ms)

    def _is_free(self, uid: str) -> bool:
        """Whether a job's version can be replaced by one with other settings."""
        return not self._log.is_paused(uid) and not self._log.read_by(uid)

    def _is_changing(self, uid: str) -> bool:
        """Whether a job has a version beside the one that is to stay."""
        return len({one.version for one in self._log.versions(uid)}) > 1
