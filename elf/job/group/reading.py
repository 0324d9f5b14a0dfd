"""The flows that the jobs here read: where their panes are, and which masters hear of new ones.

The panes of a flow are those of its root, if that is here (``roots``), or a copy of them (``mirrors``). A
master has panes once the catalog log names its version and all the flows that the version reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping

from elf.job.catalog.log import CatalogLog
from elf.job.effects import CommitPanes, CommitWindows, Effect
from elf.job.events import PanesCommitted, PanesStored
from elf.job.group.group import JobGroup
from elf.job.group.master import Master
from elf.job.group.versions import Version
from elf.job.rollup.decide import RootSettings
from elf.job.rollup.flowroots import FlowRoots
from elf.job.rollup.mirrors import Mirrors, Need
from elf.job.rollup.panes import Panes, Segment
from elf.job.spec import Flow, JobSpec
from elf.job.tops import widest
from elf.job.units import joined_at
from elf.ql.plan import Top, cut_of


class Reading:
    """The flows of the jobs in ``job_groups``, by uid; those in ``led`` are replicated, and we lead their job
    groups. ``name``: what people call this agent."""

    def __init__(
        self,
        address: str,
        log: CatalogLog,
        settings: RootSettings,
        job_groups: Mapping[str, JobGroup],
        led: Container[str],
        name: str,
    ) -> None:
        self.roots = FlowRoots(address, log, settings, self._wanted_from, self._acts_for, name)
        self.mirrors = Mirrors(log, settings, self._wanted_from)
        self._address = address
        self._log = log
        self._job_groups = job_groups
        self._led = led
        self._readers: dict[str, dict[str, None]] = defaultdict(dict)
        """For each flow, the uids of jobs here that read it, or did."""

    def _acts_for(self, flow: Flow) -> bool:
        if self._log.is_replicated(flow.uid):
            return self._log.job_groups.of(flow.uid) in self._led
        return flow.leader == self._address

    def is_coming(self, uid: str) -> bool:
        """Whether a flow may have its root here soon: our log has not come to it, or its job group is not
        up."""
        flow = self._log.flow(uid)
        if flow is None:
            return self._log.lacks(uid)
        return flow.leader == self._address and self.roots.get(uid) is None

    def _wanted_from(self, uid: str, settled: int) -> int:
        """The first pane of a flow that a job here may yet want."""
        return min((h.master.wanted_from(uid, settled) for h in self.readers(uid)), default=settled)

    def readers(self, uid: str) -> list[JobGroup]:
        """The jobs here that read a flow."""
        known = self._readers.get(uid, {})
        job_groups = [(job, self._job_groups.get(job)) for job in known]
        found = [leader for _, leader in job_groups if leader is not None and leader.master.reads(uid)]
        if len(found) < len(job_groups):
            self._readers[uid] = {leader.master.spec.uid: None for leader in found}
        if not found:
            self._readers.pop(uid, None)
        return found

    # -- which panes -----------------------------------------------------------------------------------------

    def named(self) -> Iterator[tuple[Master, Version, JobSpec]]:
        """The versions here that the catalog log has, as it has them."""
        for leader in self._job_groups.values():
            for version in leader.master.live():
                spec = self._log.version(version.spec.uid, version.number)
                if spec is not None:
                    yield leader.master, version, spec

    def attach(self, now_ms: int) -> list[Effect]:
        """Give masters the panes of the flows that the log names for their jobs."""
        wanted: dict[str, int | None] = {}
        cuts: dict[str, list[Top | None]] = defaultdict(list)
        new: list[tuple[Master, Version, JobSpec]] = []
        needs: list[Need] = []
        for master, version, spec in self.named():
            if not version.flows:
                new.append((master, version, spec))
            for flow in spec.flows:
                mirror = self.mirrors.get(flow.uid)
                if self.roots.get(flow.uid) is not None and mirror not in version.flows:
                    continue
                first = version.reads_from()
                cuts[flow.uid].append(cut_of(spec.plan))
                firsts = (wanted.get(flow.uid), first)
                wanted[flow.uid] = min((one for one in firsts if one is not None), default=None)
                if first is not None and not version.flows:
                    needs.append((flow.uid, first, cut_of(spec.plan)))
        needed = {uid: widest(some) for uid, some in cuts.items()}
        found = self.mirrors.follow(wanted, now_ms, needed, needs)
        for master, version, spec in new:
            flows = [panes for flow in spec.flows if (panes := self._panes(flow.uid)) is not None]
            if len(flows) == len(spec.flows):
                found += master.attach(version, spec, flows, joined_at(self._log, spec))
                for flow in spec.flows:
                    self._readers[flow.uid][spec.uid] = None
        return found

    def _panes(self, uid: str) -> Panes | None:
        return self.roots.get(uid) or self.mirrors.get(uid)

    def release(self, gone: set[str]) -> None:
        """The roots of these flows are no longer here: their readers need copies."""
        self.roots.release(gone)
        for leader in self._job_groups.values():
            if any(
                panes.flow.uid in gone and self.mirrors.get(panes.flow.uid) is not panes
                for panes in leader.master.flows
            ):
                leader.master.detach()

    # -- new ones --------------------------------------------------------------------------------------------

    def completed(self, uid: str, work: CommitPanes) -> tuple[CommitWindows, ...]:
        """The windows of the job whose group this is (``uid``) that these panes of a flow of its own
        complete: work for the same commit."""
        group, root = self._job_groups.get(uid), self.roots.get(work.flow.uid)
        if group is None or root is None or work.revision:
            return ()
        segment = Segment(work.start, work.end, work.revision, work.members, 0, parts=work.parts)
        with root.supposing(segment):
            return tuple(group.master.completed(root))

    def panes_committed(self, event: PanesCommitted, now_ms: int) -> list[Effect]:
        segment, found = self.roots.committed(event, now_ms)
        return [*self._changed(event.done.flow.uid, [segment] if segment else []), *found]

    def panes_stored(self, event: PanesStored, now_ms: int) -> list[Effect]:
        segments, found = self.mirrors.stored(event, now_ms)
        return [*self._changed(event.flow.uid, segments), *found]

    def _changed(self, uid: str, segments: list[Segment]) -> list[Effect]:
        """Panes of a flow are committed, or revised: windows may be complete."""
        readers = self.readers(uid) if segments else []
        return [
            e
            for leader in readers
            for segment in segments
            for e in leader.master.panes_committed(uid, segment)
        ]

    def roster_changed(self, stream: str) -> None:
        self.roots.roster_changed(stream)
        self.mirrors.roster_changed(stream)

    # -- time ------------------------------------------------------------------------------------------------

    def deadlines(self, now_ms: int) -> tuple[int | None, int | None]:
        return self.roots.deadline(now_ms), self.mirrors.deadline()

    def tick(self, now_ms: int) -> list[Effect]:
        return [*self.roots.tick(now_ms), *self.mirrors.tick(now_ms)]

    def check(self) -> None:
        self.roots.check()
        self.mirrors.check()
