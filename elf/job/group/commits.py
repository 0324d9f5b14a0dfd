"""What the replicated job groups here commit: from the request of a root or master to the answer to it.

    SaveJob, SaveFlow, SaveOutput, Prune ──────────────────────────┐
    CommitPanes, CommitWindows ──▶ Draft ──▶ (a thread) ──▶ Drafted ┴─▶ Commit ──▶ the job group's Raft group
       roots, masters ◀── told ◀── Applied ◀── (the store) ◀── Apply ◀── (majority) ◀──┘

Roots and masters do not know that they are replicated. Each commit is of the term in which its root or master
began: what comes from another term is dropped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.commits import PaneCommit
from elf.job.effects import (
    CommitPanes,
    CommitWindows,
    Effect,
    PrunePanes,
    PruneWindows,
    SaveFlow,
    SaveJob,
    SaveOutput,
    Skipped,
)
from elf.job.events import Failure, PanesCommitted, WindowsCommitted
from elf.job.group import records as record
from elf.job.group.groups import JobGroups
from elf.job.group.port import Applied, Commit, Draft, Drafted, FoundJobGroup
from elf.job.group.router import Router
from elf.job.group.subscribers import numbered

Wanted = CommitPanes | CommitWindows | SaveJob | SaveFlow | SaveOutput | PrunePanes | PruneWindows

Step = Draft | FoundJobGroup | Commit


class Commits:
    """The commits of the ``job_groups`` of one agent. ``holds``: whether this agent is in the Raft group of a
    job group, by its uid."""

    def __init__(
        self, log: CatalogLog, groups: JobGroups, router: Router, holds: Callable[[str], bool]
    ) -> None:
        self._log = log
        self._job_groups = groups
        self._router = router
        self._holds = holds
        self._drafts: dict[int, tuple[CommitPanes | CommitWindows, str, int]] = {}
        """Drafts under way, by identity, with their job group and its term."""

    def wanted(self, effect: Wanted) -> list[Step] | None:
        """What to do for a replicated job group; None: it is not replicated, and the driver performs the
        effect."""
        match effect:
            case SaveJob() if effect.spec.replicated:
                return self._save(effect)
            case SaveFlow() if self._log.is_replicated(effect.flow):
                fact = record.FlowKept(effect.flow, effect.first_pane)
                return self._commit(self._group(effect.flow), fact, effect)
            case SaveOutput():
                return self._commit(effect.kept.job, effect.kept, effect)
            case CommitPanes() if self._log.is_replicated(effect.flow.uid):
                return self._draft(self._group(effect.flow.uid), effect)
            case CommitWindows() if effect.spec.replicated:
                return self._draft(effect.spec.uid, effect)
            case PrunePanes() if self._holds(self._group(effect.flow)):
                uid, below = self._group(effect.flow), effect.below
                return [] if below is None else self._commit(uid, record.PanesDropped(effect.flow, below))
            case PruneWindows() if self._job_groups.term(effect.job) is not None:
                return self._commit(effect.job, record.WindowsDropped(effect.job, effect.below_us))
        return None

    def _save(self, job: SaveJob) -> list[Step]:
        fact = record.JobKept(job.spec, job.state, job.first_pane, job.versions)
        if self._job_groups.bootstrap(job.spec.uid):
            return [FoundJobGroup(job.spec.uid, record.encode(record.JobGroupState(fact)))]
        return self._commit(job.spec.uid, fact, job)

    def _group(self, flow: str) -> str:
        return self._log.job_groups.of(flow) or ""

    def _commit(
        self, uid: str, fact: record.JobGroupRecord, done: SaveJob | SaveFlow | SaveOutput | None = None
    ) -> list[Step]:
        term = self._job_groups.term(uid)
        return [] if term is None else [Commit(uid, term, record.encode(fact), done=done)]

    def _draft(self, uid: str, work: CommitPanes | CommitWindows) -> list[Step]:
        term = self._job_groups.term(uid)
        if term is None:
            return []
        self._drafts[id(work)] = work, uid, term
        seq = self._job_groups.roots.next_seq(work.flow.uid) if isinstance(work, CommitPanes) else 0
        return [Draft(work, seq)]

    def drafted(self, event: Drafted, now_ms: int) -> Sequence[Effect | Commit]:
        """The draft of a commit is done."""
        work, uid, term = self._drafts.pop(id(event.work), (None, "", 0))
        if work is None or self._job_groups.term(uid) != term:
            return []  # of a term that is over
        if not event.record:
            return self._told(event, 0, now_ms)
        told, whole = event.record, b""
        if len(told) > record.RECORD_BYTES_MAX:
            fact = record.record_of(told)
            if isinstance(fact, PaneCommit):
                told, whole = record.encode(fact.bare), told
            elif isinstance(work, CommitWindows):
                text = f"job {work.spec.name}: windows of {len(told)} bytes are too large to be committed"
                return self._router.handle(Failure(work.spec.uid, text, work.spec.version), now_ms)
        return [Commit(uid, term, told, whole, event)]

    def applied(self, event: Applied, now_ms: int) -> list[Effect]:
        """A record is committed, and applied here."""
        if event.why:
            return [Skipped("a record of a job group", event.why)]
        commit = event.commit
        if commit is None or commit.done is None or self._job_groups.term(commit.uid) != commit.term:
            return []
        return self._told(commit.done, event.seq, now_ms)

    def _told(self, done: Drafted | SaveJob | SaveFlow | SaveOutput, seq: int, now_ms: int) -> list[Effect]:
        match done:
            case SaveJob():
                return self._router.saved(done, now_ms)
            case SaveFlow():
                return self._router.begun(done.flow, now_ms)
            case SaveOutput():
                return self._router.kept(done, now_ms)
            case Drafted():
                return self._done(done.done, seq, now_ms)

    def _done(self, done: PanesCommitted | WindowsCommitted | Failure, seq: int, now_ms: int) -> list[Effect]:
        """A commit is made, with this number (0: it had one), or cannot be made."""
        match done:
            case PanesCommitted():
                return self._router.handle(replace(done, seq=seq), now_ms)
            case WindowsCommitted(gone=True):
                return self._router.panes_gone(done.done)
            case WindowsCommitted():
                result = done.result and numbered(done.result, seq)
                return self._router.handle(replace(done, result=result), now_ms)
            case Failure():
                return self._router.handle(done, now_ms)
