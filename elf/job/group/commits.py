"""What the replicated job groups here commit: from the request of a root or master to the answer to it.

    SaveJob, SaveFlow, SaveOutput, SaveCosts, SaveTable, … Prune ──┐
    CommitPanes, CommitWindows ──▶ Draft ──▶ (a thread) ──▶ Drafted ┴─▶ Commit ──▶ the job group's Raft group
       roots, masters ◀── told ◀── Applied ◀── (the store) ◀── Apply ◀── (majority) ◀──┘

Roots and masters do not know that they are replicated. Each commit is of the term in which its root or master
began: what comes from another term is dropped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.commits import PaneCommit
from elf.job.effects import (
    BootstrapProgram,
    CommitPanes,
    CommitWindows,
    CopyRows,
    Effect,
    KeepFilled,
    PrunePanes,
    PruneWindows,
    SaveCosts,
    Saved,
    SaveFlow,
    SaveJob,
    SaveMaster,
    SaveOutput,
    SaveShard,
    SaveTable,
    Skipped,
)
from elf.job.events import Failure, PanesCommitted, WindowsCommitted
from elf.job.group import records as record
from elf.job.group.groups import JobGroups
from elf.job.group.port import Applied, Commit, Draft, Drafted, FoundJobGroup
from elf.job.group.router import Router
from elf.job.group.subscribers import numbered
from elf.job.ring import is_ring

Wanted = CommitPanes | CommitWindows | Saved | PrunePanes | PruneWindows | BootstrapProgram | SaveMaster

Step = Draft | FoundJobGroup | Commit
SETTLES: Final = 8


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
        self._drafts: dict[int, tuple[Draft, str]] = {}
        """Drafts under way, by the identity of their work, with their job group."""
        self._commit_ms = 0.0
        """What a commit takes from its draft on: of the last ones, each counts for a part of ``SETTLES``."""

    def wanted(self, effect: Wanted) -> list[Step] | None:
        """What to do for a replicated job group; None: it is not replicated, and the driver performs the
        effect."""
        match effect:
            case SaveJob() if effect.spec.replicated:
                return self._save(effect)
            case SaveFlow() if self._log.is_replicated(effect.flow):
                fact = record.FlowKept(effect.flow, effect.first_pane)
                return self._commit(self._group(effect.flow), fact, effect)
            case BootstrapProgram(spec=program):
                state = record.JobGroupState(record.ProgramKept(program))
                return [FoundJobGroup(program.uid, record.encode(state))]
            case SaveMaster():
                kept = record.MasterKept(effect.uid, effect.number, effect.record)
                return [Commit(effect.uid, effect.term, record.encode(kept), done=effect)]
            case SaveTable(kept=kept) if is_ring(kept.job):
                return None
            case SaveShard(rows=rows) if is_ring(rows.job):
                return None
            case SaveOutput() | SaveCosts() | SaveTable():
                return self._commit(effect.kept.job, effect.kept, effect)
            case CopyRows():
                return self._commit(effect.round.job, effect.round, effect)
            case SaveShard():
                return self._commit(effect.rows.job, effect.rows, effect)
            case KeepFilled():
                return self._commit(effect.row.job, effect.row, effect)
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

    def _commit(self, uid: str, fact: record.JobGroupRecord, done: Saved | None = None) -> list[Step]:
        term = self._job_groups.term(uid)
        return [] if term is None else [Commit(uid, term, record.encode(fact), done=done)]

    def _draft(self, uid: str, work: CommitPanes | CommitWindows) -> list[Step]:
        term = self._job_groups.term(uid)
        if term is None:
            return []
        took = round(self._commit_ms)
        draft = Draft(work, term=term, commit_ms=took)
        if isinstance(work, CommitPanes):
            windows = self._job_groups.reading.completed(uid, work)
            draft = Draft(work, self._job_groups.roots.next_seq(work.flow.uid), term, windows, took)
        self._drafts[id(work)] = draft, uid
        return [draft]

    def drafted(self, event: Drafted, now_ms: int) -> Sequence[Effect | Commit]:
        """The draft of a commit is done."""
        draft, uid = self._drafts.pop(id(event.work), (None, ""))
        if draft is None or self._job_groups.term(uid) != draft.term:
            return []  # of a term that is over
        event = alone(event)
        told, whole = event.record, b""
        made = [done.done for done in event.windows]
        for work in draft.windows:
            if work not in made:  # they are made when the panes are committed
                self._router.panes_gone(work)
        if not told:
            return self._told(event, (), now_ms)
        if len(told) > record.RECORD_BYTES_MAX:
            fact = record.record_of(told)
            if isinstance(fact, PaneCommit):
                told, whole = record.encode(fact.bare), told
            elif isinstance(draft.work, CommitWindows):
                spec = draft.work.spec
                text = f"job {spec.name}: windows of {len(told)} bytes are too large to be committed"
                return self._router.handle(Failure(spec.uid, text, spec.version), now_ms)
        return [Commit(uid, draft.term, told, whole, event, now_ms)]

    def applied(self, event: Applied, now_ms: int) -> list[Effect]:
        """A record is committed, and applied here."""
        if event.why:
            return [Skipped("a record of a job group", event.why)]
        commit = event.commit
        if commit is None or commit.done is None or isinstance(commit.done, SaveMaster):  # not of a job here
            return []
        if self._job_groups.term(commit.uid) != commit.term:
            return []
        if commit.at_ms:
            self._commit_ms += (max(0, now_ms - commit.at_ms) - self._commit_ms) / SETTLES
        return self._told(commit.done, event.seqs, now_ms)

    def _told(self, done: Drafted | Saved, seqs: tuple[int, ...], now_ms: int) -> list[Effect]:
        match done:
            case SaveJob():
                return self._router.saved(done, now_ms)
            case SaveFlow():
                return self._router.begun(done.flow, now_ms)
            case SaveOutput():
                return self._router.kept(done, now_ms)
            case SaveCosts():
                self._router.costs_kept(done)
                return []
            case SaveTable():
                self._router.table_kept(done, now_ms)
                return []
            case CopyRows():
                self._router.rows_copied(done, now_ms, whole=bool(seqs[0]))
                return []
            case SaveShard():
                return self._router.shard_saved(done, now_ms)
            case KeepFilled():
                return self._router.filled(done, seqs[0], now_ms)
            case Drafted():
                first, *others = seqs or (0,)
                with_it = zip(done.windows, others, strict=True)  # first: somebody waits for these
                windows = [effect for one, seq in with_it for effect in self._done(one, seq, now_ms)]
                return [*windows, *self._done(done.done, first, now_ms)]

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


def alone(draft: Drafted) -> Drafted:
    """A draft of panes without the windows that are in its record too, if that is too large with them."""
    both = record.record_of(draft.record) if len(draft.record) > record.RECORD_BYTES_MAX else None
    if not isinstance(both, record.JointCommit):
        return draft
    return replace(draft, record=record.encode(both.panes), windows=())
