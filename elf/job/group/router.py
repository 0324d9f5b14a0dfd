"""Which of the job groups here a message, or an effect that the driver has performed, is for.

A message about a job is for its master. One about a flow is for its root, and for the masters that read it.
What was read, made, committed or delivered is for the one that asked for it. Each revision of a window is
published once, when it is committed.

**Ahead.** The entry of a new flow reaches members, readers and job group each when the tree comes to them,
and the job group of a key range is bootstrapped only then. An agent that hears of the flow sooner may have
begun, failed, or asked before the flow is at its job group. A reader of a job's windows may ask where its job
group has just come (or come back) and is not up. Such a message waits here, so that nobody has to wait for
its repetition, or misses a window meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from elf.errors import UserError
from elf.job import events as was
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.wishes import refused_fill
from elf.job.effects import (
    CommitWindows,
    CopyRows,
    Effect,
    KeepFilled,
    ReadWindows,
    SaveCosts,
    SaveFlow,
    SaveJob,
    SaveOutput,
    SaveShard,
    SaveTable,
    Send,
)
from elf.job.group.group import JobGroup
from elf.job.group.groups import JobGroups, absent, disbelieved
from elf.job.messages.groups import (
    DropJob,
    FillHistory,
    FunctionFailed,
    Inspect,
    ReadPast,
    ReconfigureJob,
    SubscribeJob,
)
from elf.job.messages.inquiries import AskWhy, InspectFlow
from elf.job.messages.rollup import (
    AskDecided,
    Begun,
    Behind,
    Decided,
    EarlyState,
    FlowBegun,
    FlowHead,
    NotRun,
    Offer,
    PaneRow,
    Progress,
    ReadPanes,
    Whereabouts,
)
from elf.job.tables import is_shard
from elf.wire.base import Answer

WORDS_MAX: Final = 4_096
"""How many messages wait; beyond that the oldest are forgotten. All are repeated every second or two."""

Word = Progress | Begun | ReadPanes | FunctionFailed | SubscribeJob

ToJob = DropJob | ReconfigureJob | SubscribeJob | Inspect | ReadPast | FillHistory
ToFlow = (
    Progress
    | Begun
    | EarlyState
    | FunctionFailed
    | Whereabouts
    | NotRun
    | Behind
    | AskDecided
    | Decided
    | Offer
    | ReadPanes
    | FlowHead
    | PaneRow
    | InspectFlow
    | AskWhy
)
Done = (
    was.PanesCommitted
    | was.PanesStored
    | was.CommitsRead
    | was.WindowsCommitted
    | was.Delivered
    | was.WindowsRead
    | was.EarlyMade
    | was.FunctionsTried
    | was.Failure
)


class Router:
    """To the ``job_groups`` of this agent."""

    def __init__(self, log: CatalogLog, groups: JobGroups) -> None:
        self._log = log
        self._job_groups = groups
        self._reading = groups.reading
        self.roots = groups.roots
        self._ahead = Ahead(groups)
        self._early: set[str] = set()
        """Job groups that were told of open panes."""

    def asked(self, request: ToJob, now_ms: int) -> list[Effect]:
        """Somebody asks something of a job."""
        match request:
            case DropJob():
                return self._job_groups.asked_to_drop(request, now_ms)
            case ReconfigureJob():
                return self._reconfigure(request, now_ms)
            case SubscribeJob():
                return self._subscribed(request, now_ms)
            case Inspect():
                return self._inspected(request)
            case FillHistory():
                group = self._job_groups.get(request.uid)
                if group is None:
                    return [absent(self._log, request)]
                if why := refused_fill(self._log, request, group.master.spec, now_ms):
                    return disbelieved(request, group.master.spec, why)
                return group.fill(request)
            case ReadPast():
                group = self._job_groups.get(request.uid)
                return [
                    absent(self._log, request) if group is None else ReadWindows(group.master.spec, request)
                ]

    def arrived(self, sender: str, message: ToFlow, now_ms: int) -> list[Effect]:
        """A member, a root or a reader of a flow sends something, or somebody asks its root for something."""
        match message:
            case Progress() | Begun():
                return self._progress(message, now_ms)
            case EarlyState():
                return self._open_panes(message, now_ms)
            case FunctionFailed():
                return self._function_failed(message, now_ms)
            case Whereabouts():
                self.roots.whereabouts(message)
            case NotRun():
                self.roots.not_run(sender, message, now_ms)
            case AskDecided():
                return self.roots.asked_decided(sender, message)
            case Decided():
                return self.roots.decided(sender, message, now_ms)
            case Behind():
                return self.roots.behind(sender, message, now_ms)
            case Offer():
                return self.roots.offered(sender, message, now_ms)
            case ReadPanes():
                self._ahead.keep_requests(sender, message)
                return self.roots.asked(sender, message, now_ms)
            case FlowHead() | PaneRow() if not self._is_root(message.flow, sender):
                return []
            case FlowHead():
                return self._begun(message.flow, now_ms) if self._job_groups.mirrors.head(message) else []
            case PaneRow():
                return self._job_groups.mirrors.take(message)
            case InspectFlow():
                return self.roots.inspected(message)
            case AskWhy():
                return self.roots.asked_why(message, now_ms)
        return []

    def _is_root(self, uid: str, sender: str) -> bool:
        """Whether the log has a flow's root there: another's word on its panes is none."""
        flow = self._log.flow(uid)
        return flow is not None and flow.leader == sender

    def handle(self, event: Done, now_ms: int) -> list[Effect]:
        """Something that a root or a master wanted has been done."""
        match event:
            case was.PanesCommitted():
                return self._reading.panes_committed(event, now_ms)
            case was.PanesStored():
                return self._reading.panes_stored(event, now_ms)
            case was.CommitsRead():
                return self.roots.read(event, now_ms)
            case was.WindowsCommitted():
                return self._windows_committed(event, now_ms)
            case was.Delivered():
                group = self._job_groups.get(event.done.job.uid)
                return group.outputs.delivered(event, now_ms) if group is not None else []
            case was.WindowsRead():
                return self._windows_read(event)
            case was.EarlyMade():
                group = self._job_groups.get(event.uid)
                return group.subscribers.early_made(event, now_ms) if group is not None else []
            case was.FunctionsTried():
                return self._functions_tried(event, now_ms)
            case was.Failure():
                group = self._job_groups.get(event.uid)
                return group.failed(event) if group is not None else []

    # -- what people ask of a job ----------------------------------------------------------------------------

    def _reconfigure(self, request: ReconfigureJob, now_ms: int) -> list[Effect]:
        """Change a job, as a statement says. Functions for panes and windows are tried first; a change with a
        PREPARE is answered when that has ended."""
        group = self._job_groups.get(request.uid)
        if group is not None and (why := self._job_groups.wishes.refused(request, group.master.spec, now_ms)):
            return disbelieved(request, group.master.spec, why)
        try:
            tried = None if group is None else group.reconfiguration.to_try(request)
        except UserError as refused:
            return [Send(request.origin, Answer(id=request.id, error=str(refused)))]
        return self._change(request, now_ms) if tried is None else [tried]

    def _functions_tried(self, event: was.FunctionsTried, now_ms: int) -> list[Effect]:
        """The functions that a change brings work, or one does not."""
        if not event.error:
            return self._change(event.request, now_ms)
        error = f"nothing is changed: {event.error}"
        return [Send(event.request.origin, Answer(id=event.request.id, error=error))]

    def _change(self, request: ReconfigureJob, now_ms: int) -> list[Effect]:
        group = self._job_groups.get(request.uid)
        if group is None:
            return [absent(self._log, request)]
        self._job_groups.stir(request.uid, now_ms)
        try:
            return group.reconfigure(request, now_ms)
        except UserError as refused:
            return [Send(request.origin, Answer(id=request.id, error=str(refused)))]

    def _subscribed(self, request: SubscribeJob, now_ms: int) -> list[Effect]:
        group = self._job_groups.get(request.uid)
        if group is not None:
            return group.subscribers.add(request, now_ms)
        self._ahead.keep_reader(request)
        return [absent(self._log, request)]

    def _inspected(self, request: Inspect) -> list[Effect]:
        group = self._job_groups.get(request.uid)
        if group is None:
            return [absent(self._log, request)]
        return [ReadWindows(group.master.spec, request, count=request.windows)]

    def _windows_read(self, event: was.WindowsRead) -> list[Effect]:
        request = event.request
        if isinstance(request, ReadPast):
            return [Send(request.origin, Answer(id=request.id, body=event.past))]
        if isinstance(request, Inspect):
            group = self._job_groups.get(request.uid)
            if group is None:
                return [absent(self._log, request)]
            facts = msgspec.structs.replace(
                group.facts(event.results), voters=self._job_groups.voters(request.uid)
            )
            body = msgspec.msgpack.encode(facts)
            return [Send(request.origin, Answer(id=request.id, body=body))]
        found: list[Effect] = []
        for result in event.results:
            group = self._job_groups.get(result.job)
            found.append(Send(request.origin, group.subscribers.marked(result) if group else result))
        return found

    # -- what roots and members say --------------------------------------------------------------------------

    def _progress(self, word: Progress | Begun, now_ms: int) -> list[Effect]:
        """How far members are with flows."""
        if isinstance(word, Begun):
            self._ahead.keep_begun(word)
            found = self.roots.begun(word, now_ms)
        else:
            self._ahead.keep_progress(word)
            found = self.roots.heard(word, now_ms)
        first = [effect.flow for effect in found if isinstance(effect, SaveFlow)]
        begun = [uid for uid in first if not self._log.is_replicated(uid)]  # others: once it is stored
        return [*found, *(effect for uid in begun for effect in self._begun(uid, now_ms))]

    def _begun(self, uid: str, now_ms: int) -> list[Effect]:
        """A flow may have begun."""
        readers = self._reading.readers(uid)
        waiting = [group for group in readers if group.master.state in ("preparing", "altering", "resuming")]
        return [effect for group in waiting for effect in self._job_groups.advance(group, now_ms)]

    def _function_failed(self, word: FunctionFailed, now_ms: int) -> list[Effect]:
        """A user's function has failed at a member."""
        self._ahead.keep_failure(word)
        found: list[Effect] = []
        for group in self._reading.readers(word.flow):
            begins = group.master.state == "preparing" and not word.stage
            never = begins and group.reconfiguration.goes_when_it_fails
            found.extend(group.function_failed(word, now_ms))
            self._job_groups.stir(group.master.spec.uid, now_ms)
            if never:
                found.extend(self._job_groups.drop(group.master.spec.uid))
        return found

    def _open_panes(self, state: EarlyState, now_ms: int) -> list[Effect]:
        """A member's open panes: for the masters here, and, if we are the root, for those elsewhere."""
        flow = self._log.flow(state.flow)
        if flow is None or not self._log.has_member(flow.fragment.stream, state.member):
            return []
        found = self.roots.early(state)
        for group in self._reading.readers(state.flow):
            self._early.add(group.master.spec.uid)
            group.subscribers.take_early(state)
            found.extend(group.subscribers.make_early(now_ms))
        return found

    # -- what has been done ----------------------------------------------------------------------------------

    def saved(self, job: SaveJob, now_ms: int) -> list[Effect]:
        """The group of a job has committed its record."""
        group = self._job_groups.get(job.spec.uid)
        if group is None or not group.reconfiguration.saved(job):
            return []
        self._job_groups.stir(job.spec.uid, now_ms)
        return group.answers()

    def begun(self, uid: str, now_ms: int) -> list[Effect]:
        """The first pane of a flow of ours is stored."""
        return [*self.roots.kept(uid, now_ms), *self._begun(uid, now_ms)]

    def kept(self, done: SaveOutput, now_ms: int) -> list[Effect]:
        """How far an output has got is committed."""
        group = self._job_groups.get(done.kept.job)
        return group.outputs.kept(done, now_ms) if group is not None else []

    def costs_kept(self, done: SaveCosts) -> None:
        """What was learned of a job is committed."""
        if (group := self._job_groups.get(done.kept.job)) is not None:
            group.learned(done.kept)

    def table_kept(self, done: SaveTable, now_ms: int) -> None:
        """That a table begins, or is over, is committed."""
        if is_shard(done.kept.table):
            self._job_groups.shards.kept(done, now_ms)
        elif (group := self._job_groups.get(done.kept.job)) is not None:
            group.outputs.tables.kept(done)

    def rows_copied(self, done: CopyRows, now_ms: int, *, whole: bool) -> None:
        """A table has got the next rows of the one whose place it takes."""
        if (group := self._job_groups.get(done.round.job)) is not None:
            group.outputs.tables.copied(done, now_ms, whole=whole)

    def shard_saved(self, done: SaveShard, now_ms: int) -> list[Effect]:
        """A shard of a table has more results, or rows."""
        return self._job_groups.shards.saved(done, now_ms)

    def filled(self, done: KeepFilled, number: int, now_ms: int) -> list[Effect]:
        """A result that was made offline is committed."""
        group = self._job_groups.get(done.row.job)
        if group is None:
            return []
        return [*group.filled(done, number), *group.outputs.published(number, now_ms)]

    def _windows_committed(self, event: was.WindowsCommitted, now_ms: int) -> list[Effect]:
        group = self._job_groups.get(event.done.spec.uid)
        if group is None:
            return []
        found = [*group.windows_committed(event, now_ms), *self._job_groups.advance(group, now_ms)]
        if event.failure:
            found.extend(group.reconfiguration.final_failed(event, now_ms))
            self._job_groups.stir(event.done.spec.uid, now_ms)
        if event.result is not None:
            found.extend(group.subscribers.publish(event.result))
            found.extend(group.outputs.published(event.result.number, now_ms))
        return found

    def panes_gone(self, work: CommitWindows) -> list[Effect]:
        group = self._job_groups.get(work.spec.uid)
        if group is not None:
            group.master.panes_gone(work)
            self._job_groups.make_again(work.spec.uid)
        return []

    # -- time, and what the catalog log and the ring say -----------------------------------------------------

    def peer_up(self, address: str) -> None:
        """The overlay has heard of an agent (again)."""
        self.roots.peer_up(address)

    def peer_down(self, address: str, now_ms: int) -> list[Effect]:
        """The overlay takes an agent for dead."""
        return self.roots.peer_down(address, now_ms)

    def roster_changed(self, stream: str) -> None:
        """A stream has other members."""
        self._reading.roster_changed(stream)

    def log_changed(self, now_ms: int) -> list[Effect]:
        """The catalog log says more about jobs and flows."""
        return [*self._job_groups.log_changed(now_ms), *self.hear_again(now_ms)]

    def hear_again(self, now_ms: int) -> list[Effect]:
        """Handle the messages about flows and job groups that have come meanwhile."""
        found: list[Effect] = []
        for sender, word in self._ahead.take():
            match word:
                case SubscribeJob():
                    found.extend(self._subscribed(word, now_ms))
                case _:
                    found.extend(self.arrived(sender, word, now_ms))
        return found

    def deadline(self, now_ms: int) -> int | None:
        waits = [self._job_groups.deadline(now_ms)]
        waits += [group.subscribers.early_due_ms() for group in self._told_early()]
        return min((at for at in waits if at is not None), default=None)

    def tick(self, now_ms: int, voters: Sequence[str]) -> list[Effect]:
        """``voters``: of the catalog log, by address."""
        found = self._job_groups.tick(now_ms, voters)
        for group in self._told_early():
            found.extend(group.subscribers.make_early(now_ms))
        return found

    def _told_early(self) -> list[JobGroup]:
        self._early = {uid for uid in self._early if self._job_groups.has(uid)}
        return [group for uid in sorted(self._early) if (group := self._job_groups.get(uid)) is not None]


class Ahead:
    """For each sender the last message of each kind about a flow that is not here yet, or about a job whose
    job group is not up yet."""

    def __init__(self, groups: JobGroups) -> None:
        self._job_groups = groups
        self._words: dict[tuple[str, type[Word], str], Word] = {}

    def keep_progress(self, progress: Progress) -> None:
        """A member has begun."""
        for report in progress.flows:
            if self._job_groups.is_coming(report.flow):
                word = msgspec.structs.replace(progress, flows=(report,))
                self._keep(report.flow, str(progress.member), word)

    def keep_begun(self, message: Begun) -> None:
        """Members have begun, several at once."""
        for begun in message.flows:
            for one in begun.members if self._job_groups.is_coming(begun.flow) else ():
                word = Begun(flows=(FlowBegun(begun.flow, (one,)),))
                self._keep(begun.flow, str(one.member), word)

    def keep_requests(self, sender: str, message: ReadPanes) -> None:
        """A reader asks for commits."""
        for request in message.requests:
            if self._job_groups.is_coming(request.flow):
                self._keep(request.flow, sender, ReadPanes(requests=(request,)))

    def keep_failure(self, word: FunctionFailed) -> None:
        """A user's function has failed at a member."""
        if self._job_groups.is_coming(word.flow):
            self._keep(word.flow, word.agent, word)

    def keep_reader(self, request: SubscribeJob) -> None:
        """An agent wants a job's windows."""
        if self._job_groups.is_rising(request.uid):
            self._keep(request.uid, request.origin, request)

    def _keep(self, uid: str, sender: str, word: Word) -> None:
        self._words.pop((uid, type(word), sender), None)
        self._words[uid, type(word), sender] = word
        if len(self._words) > WORDS_MAX:
            del self._words[next(iter(self._words))]

    def take(self) -> list[tuple[str, Word]]:
        """(Sender, message) of each whose flow or job group has come, in the order in which they came."""
        if not self._words:
            return []
        known = {key: word for key, word in self._words.items() if not self._waits(key[0], word)}
        for key in known:
            del self._words[key]
        return [(sender, word) for (_, _, sender), word in known.items()]

    def _waits(self, uid: str, word: Word) -> bool:
        return (
            self._job_groups.is_rising(uid)
            if isinstance(word, SubscribeJob)
            else self._job_groups.is_coming(uid)
        )
