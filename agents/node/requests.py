"""What other nodes ask of this one, and who answers it here.

A request wants exactly one ``Answer``. Those about a job come to its job group, those about a flow to its
root, those about a stream to a member. CREATE comes to the node nearest to the app id, which becomes the job
group or sends it on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from agents.answering.asks import ToKey
from agents.node import catalog
from agents.node.beginning import Context
from agents.node.catalog import Catalog
from agents.node.hosting import Hosting
from agents.node.leaving import Leaving
from agents.node.lending import Lending
from agents.node.working import Working
from elf.job.effects import Consult, Examine, LookUp, Send
from elf.job.group.groups import JobGroups, absent, refusal
from elf.job.group.placing import AtKey, Here, Taken
from elf.job.group.router import Router
from elf.job.messages.groups import (
    CreateJob,
    DropJob,
    FillHistory,
    HandOverJob,
    Inspect,
    ReadPast,
    ReconfigureJob,
    SubscribeJob,
    WhoIsThere,
)
from elf.job.messages.inquiries import (
    DescribeStream,
    InspectClocks,
    InspectLoads,
    LocateInTree,
    LookAt,
    NotifyJob,
    RollArchive,
    SampleRows,
    TraceRows,
)
from elf.job.messages.log import AgentLoad
from elf.job.ring import is_ring
from elf.job.spec import app_id
from elf.job.stamps import InspectStamps
from elf.job.tables import BEHIND, CopyShard, ReadShard, ReadTable
from elf.job.work import InspectWork, WorkStatus, flow_work
from elf.wire.base import Answer, Request
from elf.wire.clients import InspectAgent

Step = catalog.Step | ToKey


class Requests:
    """To one agent."""

    def __init__(
        self,
        context: Context,
        catalog: Catalog,
        job_groups: JobGroups,
        router: Router,
        working: Working,
        leaving: Leaving,
        hosting: Hosting,
        loads: Callable[[int], Mapping[str, AgentLoad]],
        lending: Lending,
    ) -> None:
        """``loads``: what agents have said of late that they do, now."""
        self._loads = loads
        self._lending = lending
        self._me = context.me
        self._streams = context.streams
        self._log = context.log
        self._overlay = context.overlay
        self._catalog = catalog
        self._job_groups = job_groups
        self._router = router
        self._working = working
        self._leaving = leaving
        self._hosting = hosting

    def answer(self, request: Request, now_ms: int) -> list[Step]:
        """The answer, or what leads to it."""
        match request:
            case CreateJob():
                return self._create(request, now_ms)
            case WhoIsThere():
                stays = self._catalog.neighbours()[:1] if self._leaving.under_way else []
                body = msgspec.msgpack.encode(stays[0] if stays else self._me.address)
                return [Send(request.origin, Answer(id=request.id, body=body))]
            case ReconfigureJob():
                return [*self._router.asked(request, now_ms), *self.remind(now_ms)]
            case DropJob() | SubscribeJob() | Inspect() | ReadPast() | FillHistory():
                return list(self._router.asked(request, now_ms))
            case ReadTable() | CopyShard() if is_ring(request.uid):
                return [LookUp(request)]
            case ReadShard() if self._job_groups.swaps.holds(request.table):
                return [Send(request.origin, Answer(id=request.id, error=BEHIND))]
            case ReadTable():
                leads = self._job_groups.term(request.uid) is not None
                here = leads or (request.anywhere and self._hosting.holds(request.uid))
                return [LookUp(request) if here else absent(self._log, request)]
            case ReadShard() | CopyShard():
                leads = self._job_groups.term(request.uid) is not None
                return [LookUp(request) if leads else absent(self._log, request)]
            case HandOverJob():
                return list(self._hosting.hand_over(request, now_ms))
            case NotifyJob():
                root = self._job_groups.roots.get(request.flow)
                return list(self._working.broadcasts.asked(request, root, self._overlay.is_root, now_ms))
            case InspectWork():
                return [self._work(request, now_ms)]
            case InspectAgent() | InspectStamps():
                return [Examine(request)]
            case LocateInTree():
                return [self._catalog.place(request)]
            case InspectLoads():
                body = msgspec.msgpack.encode(self._loads(now_ms))
                return [Send(request.origin, Answer(id=request.id, body=body))]
            case InspectClocks():
                body = msgspec.msgpack.encode(self._working.clocks.skews(now_ms))
                return [Send(request.origin, Answer(id=request.id, body=body))]
            case DescribeStream() | RollArchive() | SampleRows() | LookAt() | TraceRows():
                if request.stream in self._streams:
                    return [Consult(request.stream, request)]
                error = f"no stream {request.stream} here"
                return [Send(request.origin, Answer(id=request.id, error=error))]
            case _:
                return []

    def _work(self, request: InspectWork, now_ms: int) -> Send:
        """What was done here for some flows and jobs."""
        found = []
        for uid in request.flows:
            flow = self._log.flow(uid)
            parent = self._overlay.parent(flow.topic) if flow is not None else None
            counts = (*self._working.sender.counts(uid), self._job_groups.roots.counts(uid))
            found.append(flow_work(uid, parent or "", counts))
        flows = tuple(one for one in found if one is not None)
        budgets = self._lending.of(request.jobs)
        jobs = self._job_groups.work(request.jobs, costs=request.costs)
        links = self._working.links_told(now_ms) if request.links else ()
        facts = WorkStatus(self._me.name, flows, jobs, budgets, links)
        return Send(request.origin, Answer(id=request.id, body=msgspec.msgpack.encode(facts)))

    def remind(self, now_ms: int) -> list[Step]:
        """What the catalog log is to say of our jobs, at once."""
        return list(self._router.tick(now_ms, self._catalog.membership.voters))

    def _create(self, request: CreateJob, now_ms: int) -> list[Step]:
        """Become the job group, unless the log knows it at another one (unknown is never new)."""
        asked = request.spec
        if why := self._log.refused(asked):
            return [Send(request.origin, Answer(id=request.id, error=f"job {asked.name} is refused: {why}"))]
        named = (asked.name, asked.creator)
        known = next((job for job in self._log.jobs() if (job.name, job.creator) == named), None)
        if known is not None and known.leader != self._me.address:
            return [Send(known.leader, request)]
        if known is not None and not self._job_groups.has(known.uid):
            return [refusal(request)]  # its job group is here, but not at work yet or any more
        replaced = known.uid if known is not None and request.replace else ""
        key = app_id(asked.name, asked.creator)
        match Here(key) if known is not None else self._job_groups.where(request, now_ms):
            case Here(topic=key):
                spec, found = self._job_groups.create(request, key, now_ms, replaced)
            case AtKey(key=key, request=onward):
                return [ToKey(key, onward)]
            case Taken():
                return [refusal(request)]
        if spec is None:
            return list(found)
        parts = [step for stream in spec.plan.streams for step in self._catalog.take_part(stream, now_ms)]
        return [*found, *parts, *self.remind(now_ms)]
