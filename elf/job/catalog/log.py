"""The catalog log: members, flows and jobs of every stream, as numbered entries that every agent follows.

Its *voters* all append to it in the same way (``elf.job.catalog.admission``); each agent holds a prefix. The
log says which members are **expected** (without it "12 of 12 agents" may mean 12 of 15), which flows to
compute, which jobs read them and where a job group is. Member numbers are given once and never used again
(protocol 1.5). Rosters are in event time: a member is expected in a pane when ``since <= start of the pane <
until`` (protocol 2.3).

The order of entries decides which jobs share a flow. A job is *attached* to the flows that its entry names,
from its entry to its tombstone; so is each of its later versions. The voters replace a flow that a new job
proposes by an equal running one, and end a flow that no job is attached to; nothing is attached after the
end.

``elf.job.catalog.members`` has what is asked of members, ``elf.job.catalog.flowgroups`` the job group of each
flow, and who bootstraps those of key ranges. Of a job that is over only tombstones remain
(``elf.job.catalog.compaction``): here, at voters, and in what followers are told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from elf.errors import ElfBug
from elf.fields import replace
from elf.job.catalog.assignments import Assignments
from elf.job.catalog.authors import Authors
from elf.job.catalog.bootstrap import bootstrap_of
from elf.job.catalog.compaction import Compaction, Version, tombstone
from elf.job.catalog.flowgroups import FlowGroups, RangeGroup
from elf.job.catalog.members import Member, Members
from elf.job.catalog.offloads import Offloads
from elf.job.catalog.readings import Readings
from elf.job.catalog.rings import Rings
from elf.job.catalog.routings import Routings, misled
from elf.job.messages.log import (
    AggregateAdded,
    FlowEnded,
    JobAdded,
    JobDropped,
    JobGroupAssigned,
    JobGroupMoved,
    LogEntry,
    MemberJoined,
    MemberLeft,
    OutputAdded,
    PauseDecided,
    ProgramAdded,
    RekeyingPaused,
    RingSwapped,
    RosterChanged,
    RouteDecided,
    RowsOffloaded,
    TreesDecided,
    VersionAdded,
    VersionEnded,
)
from elf.job.output import OutputSpec, why_not
from elf.job.own import OwnSpec
from elf.job.places import may_have_rows
from elf.job.program.spec import ProgramSpec
from elf.job.ring import has_ring
from elf.job.spec import Flow, JobSpec, app_id, group_uid, is_range, job_of
from elf.job.tables import is_table, shards_of
from elf.ql.plan import Fragment
from elf.security.roster import Roster, Trust

_Named = TypeVar("_Named", JobSpec, ProgramSpec, OutputSpec, OwnSpec)


class CatalogLog(Members):
    """A prefix of the log and what follows from it. ``trust``: whose signatures count; None: the fleet has no
    keys."""

    def __init__(self, entries: Iterable[LogEntry] = (), trust: Trust | None = None) -> None:
        super().__init__()
        self.trust = trust
        self.roster = None if trust is None else Roster(trust.cluster, trust.authority)
        """What this log says, and nothing else: equal logs have equal ones."""
        self._entries: list[LogEntry] = []
        self.skipped: dict[int, str] = {}
        """Entries that cannot be used, and why: they have a number, and no effect in any copy of the log."""
        self._jobs: dict[str, JobSpec] = {}
        self._programs: dict[str, ProgramSpec] = {}
        self._outputs: dict[str, OutputSpec] = {}
        self._outputs_of: dict[str, dict[str, None]] = {}
        """By job, the uids of its outputs that are not dropped."""
        self._homes: dict[str, tuple[str, ...]] = {}
        """By table, the job groups of its shards."""
        self.rings = Rings()
        self._aggregates: dict[str, OwnSpec] = {}
        """Those that are not dropped, and were not replaced."""
        self._dropped: set[str] = set()
        self._paused: set[str] = set()
        """Tables whose rows get their new key later."""
        self._over_jobs: set[str] = set()
        """Jobs that read jobs, or did."""
        self._flows: dict[str, Flow] = {}
        self._by_fragment: dict[Fragment, str] = {}
        self._versions: dict[str, dict[int, JobSpec]] = {}
        self._over: dict[str, set[int]] = {}
        self._attached: dict[str, dict[tuple[str, int], None]] = {}
        self._ended: set[str] = set()
        self.readings = Readings()
        self._bootstrapped_at: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        """The highest of all jobs that ever were, by app id."""
        self.job_groups = FlowGroups()
        self.assignments = Assignments()
        self.offloads = Offloads()
        self.routings = Routings()
        self._compaction = Compaction()
        self._forgotten: list[int] = []
        self.authors = Authors(self.roster)
        for entry in entries:
            self.append(entry)
        self.forget()

    @property
    def last(self) -> int:
        """Number of the last entry; 0 when there is none."""
        return len(self._entries)

    def after(self, seq: int, limit: int = 500) -> tuple[LogEntry, ...]:
        return tuple(self._entries[seq : seq + limit])

    def extend(self, after: int, entries: Iterable[LogEntry]) -> tuple[LogEntry, ...]:
        """Take what is new of a tail that begins after ``after``, and return it; nothing of a tail after a
        gap."""
        if after > self.last:
            return ()
        self.forget()
        new = tuple(entry for entry in entries if entry.seq > self.last)
        for entry in new:
            self.append(entry)
        return new

    def append(self, entry: LogEntry) -> None:
        """Append the next entry."""
        if entry.seq != self.last + 1:
            raise ElfBug(f"catalog log: entry {entry.seq} after {self.last}")
        self._entries.append(entry)
        if why := self._why_not(entry):
            self.skipped[entry.seq] = why
            return
        match entry:
            case MemberJoined():
                self._join(entry)
                self._follow_rings()
            case MemberLeft():
                self._leave(entry)
                self._follow_rings()
            case JobAdded():
                self.authors.add(entry.spec)
                self._jobs[entry.spec.uid] = entry.spec
                self._bootstrapped_at[entry.spec.uid] = entry.spec.master
                self._number(entry.spec.uid)
                self._attach(entry.spec, entry.seq)
            case VersionAdded():
                self.authors.add(entry.spec)
                self.assignments.version(entry.spec, entry.seq)
                self._jobs[entry.spec.uid] = entry.spec
                self._attach(entry.spec, entry.seq)
            case VersionEnded():
                self.authors.used(entry.nonces, entry.uid)
                self._over.setdefault(entry.uid, set()).add(entry.version)
                if len(self._versions.get(entry.uid, ())) > 1:
                    self.assignments.ended(entry, self._jobs[entry.uid])
                self._detach(entry.uid, entry.version, entry.seq)
                self._compaction.changed(entry.uid)
            case ProgramAdded():
                self.authors.add_program(entry.spec)
                self._programs[entry.spec.uid] = entry.spec
                self._bootstrapped_at[entry.spec.uid] = entry.spec.master
                for group, root in zip(entry.spec.groups[1:], entry.spec.roots, strict=True):
                    self.job_groups.add_tree(group, self._agents_at(root)[-1], root)
                self._number(entry.spec.uid)
                self._compaction.add_plain(entry.seq, entry.spec.uid)
            case OutputAdded():
                self._add_output(entry.spec, entry.seq)
            case RekeyingPaused():
                self._pause(entry)
            case RingSwapped():
                self.rings.swap(entry)
                self._paused.discard(entry.uid)
            case AggregateAdded():
                self._add_aggregate(entry.spec, entry.seq)
            case JobDropped():
                self.authors.used(entry.nonces, entry.uid)
                self._drop(entry)
            case FlowEnded():
                self._forget_flow(entry.uid)
            case JobGroupMoved():
                self.assignments.moved(entry)
                self._move(entry)
            case JobGroupAssigned() | TreesDecided() | PauseDecided():
                self.assignments.add(entry)
            case RouteDecided():
                self.routings.add(entry)
            case RowsOffloaded():
                self.authors.used(entry.nonces, entry.uid)
                self.offloads.add(entry)
            case RosterChanged() if self.roster is not None:
                self.roster.take(entry.signed)

    def _why_not(self, entry: LogEntry) -> str:
        """Why an entry cannot be used; empty: it can. A function of the log before it."""
        match entry:
            case MemberJoined():
                known = self._members.get(entry.stream, {}).get(entry.number)
                if known is not None and known.agent_id != entry.agent_id:
                    return f"member {entry.number} of {entry.stream} is another agent"
            case MemberLeft() if entry.number not in self._members.get(entry.stream, {}):
                return f"{entry.stream} has no member {entry.number}"
            case JobAdded() | VersionAdded():
                return entry.spec.unusable or self.contradicts(entry.spec) or self.refused(entry.spec)
            case ProgramAdded():
                refused = entry.spec.unusable or self.authors.refused_program(entry.spec)
                return refused or self.misplaced(entry.spec)
            case OutputAdded():
                return self.refused_output(entry.spec)
            case AggregateAdded():
                return entry.spec.unusable or self.authors.refused_aggregate(entry.spec)
            case RouteDecided():
                return misled(entry.target, entry.vias)
            case RosterChanged() if self.roster is not None and not self.roster.has(entry.signed):
                return self.roster.refusal(entry.signed)
        return ""

    def refused(self, spec: JobSpec) -> str:
        """Why a job, or a version of one, is not what a person has signed who may; empty: it is, or there are
        no keys."""
        if self.roster is None:
            return ""
        read = [one.plan for uid in spec.plan.reads for one in self.versions(uid)]
        return self.authors.refused(spec, read)

    def misplaced(self, spec: ProgramSpec) -> str:
        """Why the trees of a job in Python cannot be where it says; empty: they can."""
        roots = spec.roots
        if len(roots) == len(spec.trees) - 1 and all(map(self.there, roots)):
            return ""
        return "a tree of it has no place"

    def refused_output(self, spec: OutputSpec) -> str:
        """Why an output is none, as far as the log knows; empty: it is one, or its job is over."""
        job = self._jobs.get(spec.job)
        if job is None and spec.job not in self._dropped:
            return "there is no such job yet"
        if job is not None and job.creator != spec.creator:
            return f"the job is {job.creator}'s, and the output {spec.creator}'s"
        if is_table(spec) and (why := why_not(spec.target, dict(spec.options))):
            return why
        if why := self._takes_no_place(spec):
            return why
        return self.authors.refused_output(spec, "" if job is None else job.name)

    def _takes_no_place(self, spec: OutputSpec) -> str:
        """Why a table cannot take the place of another one; empty: it can, or takes none, or what was there
        is over."""
        uid = spec.option("of")
        old = self._outputs.get(uid)
        if not uid or uid in self._dropped:
            return ""
        if old is None or replace(spec, options=_but_key(spec)) != replace(
            old, generation=spec.generation, author=spec.author, options=_but_key(old)
        ):
            return "nothing of a table but its key is changed"
        if self.rings.is_changing(uid):
            return "its key is being changed"
        homes = self._homes.get(uid, ())
        apart = "".join("01"[is_range(home)] for home in homes)
        sharded = bool(homes) or has_ring(old)
        if (spec.option("homes"), spec.option("was")) != (apart, old.option("key") if sharded else ""):
            return "the shards of a table stay where they are"
        return ""

    def _follow_rings(self) -> None:
        if self.rings:
            self.rings.have(self.lenders())

    def _add_output(self, spec: OutputSpec, seq: int) -> None:
        self.authors.add_output(spec)
        if has_ring(spec):
            self.rings.have(self.lenders())
            self.rings.add(spec)
        if spec.option("of") in self._outputs:
            self._drop_outputs(spec.option("of"))
        self._outputs[spec.uid] = spec
        self._number(spec.uid)
        self._compaction.add_plain(seq, spec.uid)
        if spec.job in self._dropped or spec.uid in self._dropped:
            self._dropped.add(spec.uid)
            self.rings.drop(spec.uid)
        else:
            self._outputs_of.setdefault(spec.job, {})[spec.uid] = None
        if is_table(spec) and shards_of(spec) > 1 and not has_ring(spec):
            groups = [group_uid(spec.job, place) for place in range(shards_of(spec))]
            there = self.job_groups
            said = spec.option("homes")
            if len(said) != len(groups):
                said = "".join("01"[there.address(one) is not None] for one in groups)
            pairs = zip(groups, said, strict=True)
            self._homes[spec.uid] = tuple(one if own == "1" else spec.job for one, own in pairs)

    def _pause(self, entry: RekeyingPaused) -> None:
        self.authors.used(entry.nonces, entry.uid)
        self._paused.discard(entry.uid)
        if entry.paused and self.output(entry.uid) is not None:
            self._paused.add(entry.uid)

    def _add_aggregate(self, spec: OwnSpec, seq: int) -> None:
        self.authors.add_aggregate(spec)
        self._number(spec.uid)
        if not spec.text:
            self._dropped.add(spec.uid)
            return
        self._compaction.add_plain(seq, spec.uid)
        if spec.uid in self._dropped:
            return
        for other in list(self._aggregates.values()):
            if other.app == spec.app:
                self._drop_aggregate(other.uid)
        self._aggregates[spec.uid] = spec

    def _drop_aggregate(self, uid: str) -> None:
        self._dropped.add(uid)
        self._aggregates.pop(uid, None)
        self._compaction.changed(uid)

    def _drop_outputs(self, uid: str) -> None:
        """An output is over, or a job and so all of its outputs."""
        output = self._outputs.get(uid)
        over = list(self._outputs_of.get(uid, ())) if output is None else [uid]
        job = uid if output is None else output.job
        for one in over:
            self._dropped.add(one)
            self._paused.discard(one)
            self.rings.drop(one)
            self._outputs_of.get(job, {}).pop(one, None)
            self._compaction.changed(one)
        if not self._outputs_of.get(job, True):
            del self._outputs_of[job]

    def _number(self, uid: str) -> None:
        """Note the generation of a job; a tombstone that is not a job's says nothing."""
        app, _, generation = uid.rpartition(".")
        if generation.isdecimal():
            self._generations[app] = max(self._generations.get(app, 0), int(generation))

    def _drop(self, entry: JobDropped) -> None:
        uid, made = entry.uid, self._versions.get(entry.uid, {})
        self._dropped.add(uid)
        self._number(uid)
        if (said := bootstrap_of(uid)) is not None:
            self.job_groups.decide(said)
        self.readings.drop(uid, entry.seq, known=bool(made) or self._is_no_query(uid))
        for version in list(made):
            self._detach(uid, version, entry.seq)
        self._drop_outputs(uid)
        self._aggregates.pop(uid, None)
        self._compaction.changed(uid)

    def _is_no_query(self, uid: str) -> bool:
        return uid in self._outputs or uid in self._programs or uid in self._aggregates

    def forget(self) -> None:
        """Replace what nothing needs any more by tombstones."""
        for seq in self._compaction.forget(self):
            entry = self._entries[seq - 1]
            self._entries[seq - 1] = tombstone(entry)
            self._forgotten.append(seq)
            if isinstance(entry, JobAdded | VersionAdded):
                self._forget_job(entry.spec)
            elif isinstance(entry, ProgramAdded):
                del self._programs[entry.spec.uid], self._bootstrapped_at[entry.spec.uid]
                self.job_groups.forget(entry.spec.groups[1:])
            elif isinstance(entry, OutputAdded):
                del self._outputs[entry.spec.uid]
                self._homes.pop(entry.spec.uid, None)

    def take_forgotten(self) -> tuple[LogEntry, ...]:
        """The tombstones that have taken the place of entries since this was asked."""
        found, self._forgotten = self._forgotten, []
        return tuple(self._entries[seq - 1] for seq in found)

    def _forget_job(self, spec: JobSpec) -> None:
        """Forget a version of a job; with its first one goes the job."""
        if spec.uid in self._dropped and not self._compaction.keeps(spec.uid):
            self.job_groups.forget({group_uid(spec.uid, flow.fragment.range[0]) for flow in spec.flows})
            for known in (self._jobs, self._versions, self._bootstrapped_at):
                known.pop(spec.uid, None)
            self._over_jobs.discard(spec.uid)
            self.assignments.forget(spec.uid)
            self.offloads.forget(spec.uid)

    def _move(self, entry: JobGroupMoved) -> None:
        """Move a job, or a key range of one, and what it brought, in the specs of all versions that read any
        of it."""
        self.job_groups.move(entry)
        if (program := self._programs.get(entry.uid)) is not None:
            self._programs[entry.uid] = replace(program, master=entry.leader)
        flows = self.job_groups.flows(entry.uid)
        for uid in flows:
            self._flows[uid] = replace(self._flows[uid], leader=entry.leader)
        own = [(entry.uid, number) for number in self._compaction.versions(entry.uid)]
        for version in {*own, *(one for uid in flows for one in self._compaction.named_by(uid))}:
            self._move_version(version, entry)

    def _move_version(self, version: Version, entry: JobGroupMoved) -> None:
        """Move it in this version, if that is known."""
        uid, number = version
        made, newest = self._versions.get(uid, {}), self._jobs.get(uid)
        if number in made:
            made[number] = self._moved(made[number], entry)
        if newest is not None and newest.version == number:
            self._jobs[uid] = self._moved(newest, entry)

    def _moved(self, spec: JobSpec, entry: JobGroupMoved) -> JobSpec:
        master = entry.leader if spec.uid == entry.uid else spec.master
        flows = tuple(self._flows.get(flow.uid, flow) for flow in spec.flows)
        return replace(spec, master=master).with_flows(flows)

    def _attach(self, spec: JobSpec, seq: int) -> None:
        if spec.plan.reads:
            self._over_jobs.add(spec.uid)
        self._versions.setdefault(spec.uid, {})[spec.version] = spec
        named, founds = [flow.uid for flow in spec.flows if flow.uid not in self._ended], False
        for flow in spec.flows:
            if flow.uid not in self._ended:
                self._flows.setdefault(flow.uid, flow)
                founds |= self.job_groups.add(flow, spec, self._agents_at)
                if (
                    spec.replicated
                ):  # a lasting job must not rest on a SELECT's flow, which dies with its root
                    self._by_fragment.setdefault(flow.fragment, flow.uid)
                self._attached.setdefault(flow.uid, {})[spec.uid, spec.version] = None
                self.readings.begin(flow.uid, spec, seq)
        self._compaction.add(seq, spec, named, founds=founds)

    def _detach(self, uid: str, version: int, seq: int) -> None:
        left = self._versions.get(uid, {})
        spec = left.pop(version, None)
        self.assignments.detached(uid, version)
        if spec is None:
            self.readings.hide(uid, seq)
        if left:
            self._jobs[uid] = left[max(left)]
        for flow in spec.flows if spec else ():
            readers = self._attached.get(flow.uid)
            if readers is not None:
                readers.pop((uid, version), None)
            self.readings.end(flow.uid, uid, version, seq)

    def _forget_flow(self, uid: str) -> None:
        self._ended.add(uid)
        self._compaction.ended(uid)
        self._attached.pop(uid, None)
        self.readings.forget(uid)
        self.routings.forget(uid)
        flow = self._flows.pop(uid, None)
        if flow is not None:
            self.job_groups.ended(uid)
            if self._by_fragment.get(flow.fragment) == uid:
                del self._by_fragment[flow.fragment]

    # -- what everybody asks ---------------------------------------------------------------------------------

    def asked(self, fragment: Fragment) -> tuple[Member, ...]:
        """The members of a stream that may have rows of a fragment of it (protocol 2.6)."""
        return tuple(one for one in self.members(fragment.stream) if self.may_have(fragment, one))

    def may_have(self, fragment: Fragment, member: Member) -> bool:
        """Whether a member of its stream may have rows of a fragment."""
        base = self.flow(fragment.late_of) if fragment.late_of else None
        read = [fragment] if base is None else [fragment, base.fragment]
        return all(may_have_rows(one, member.labels) for one in read)

    def jobs(self) -> tuple[JobSpec, ...]:
        """Jobs that are not dropped, each as its newest version that reads flows (of a paused job: that
        did)."""
        return tuple(spec for uid, spec in self._jobs.items() if uid not in self._dropped)

    def streams_of(self, entry: LogEntry) -> tuple[str, ...]:
        """The streams that an entry of this log is about; all of them for a job in Python, which every agent
        runs, and for a key, which every agent has to know."""
        match entry:
            case MemberJoined() | MemberLeft():
                return (entry.stream,)
            case JobAdded() | VersionAdded():
                spec: JobSpec | None = entry.spec
            case ProgramAdded() | AggregateAdded() | RosterChanged():
                return self.streams()
            case JobDropped() if entry.uid in self._programs or entry.uid in self._aggregates:
                return self.streams()
            case OutputAdded():
                spec = self._jobs.get(entry.spec.job)
            case RekeyingPaused() | RingSwapped():
                table = self._outputs.get(entry.uid)
                spec = None if table is None else self._jobs.get(table.job)
            case JobDropped() if entry.uid in self._outputs:
                spec = self._jobs.get(self._outputs[entry.uid].job)
            case JobGroupMoved() if job_of(entry.uid) in self._programs:
                return self.streams()
            case JobGroupMoved() | JobGroupAssigned() | TreesDecided() | PauseDecided():
                moved = [flow for known in self.versions(job_of(entry.uid)) for flow in known.flows]
                return tuple(sorted({flow.fragment.stream for flow in moved}))
            case RowsOffloaded():
                spec = self._jobs.get(entry.uid)
            case RouteDecided():
                flow = self.flow(entry.uid)
                return () if flow is None else (flow.fragment.stream,)
            case JobDropped():
                said = bootstrap_of(entry.uid)
                of = job_of(said.leader) if said is not None else entry.uid
                if of in self._programs:
                    return self.streams()
                spec = self._jobs.get(of)
            case FlowEnded() | VersionEnded():
                spec = None  # its readers are gone, and its workers hear of it soon
        return tuple(sorted({flow.fragment.stream for flow in spec.flows})) if spec is not None else ()

    def job(self, uid: str) -> JobSpec | None:
        return None if uid in self._dropped else self._jobs.get(uid)

    def version(self, uid: str, number: int) -> JobSpec | None:
        """A version of a job, while it reads its flows."""
        return None if uid in self._dropped else self._versions.get(uid, {}).get(number)

    def has_version(self, uid: str, number: int) -> bool:
        """Whether the log has come to a version of a job, which may be over."""
        newest = self._jobs.get(uid)
        return self.is_over(uid, number) or (newest is not None and newest.version >= number)

    def versions(self, uid: str) -> tuple[JobSpec, ...]:
        """What is known of a job: its newest version, and all versions that read flows."""
        newest = self._jobs.get(uid)
        return (*(() if newest is None else (newest,)), *self._versions.get(uid, {}).values())

    def is_over(self, uid: str, version: int) -> bool:
        """Whether a version of a job no longer reads its flows."""
        return uid in self._dropped or version in self._over.get(uid, ())

    def is_paused(self, uid: str) -> bool:
        """Whether a job reads nothing."""
        return uid not in self._dropped and uid in self._jobs and not self._versions.get(uid)

    def is_dropped(self, uid: str) -> bool:
        return uid in self._dropped

    def equal(self, fragment: Fragment) -> Flow | None:
        """The running flow that computes this fragment. One that begins in the past is read by its own job
        alone: for another job it would begin where it is."""
        if fragment.since_us is not None:
            return None
        return self._flows.get(self._by_fragment.get(fragment, ""))

    def flows(self) -> tuple[Flow, ...]:
        """Flows that have not ended."""
        return tuple(self._flows.values())

    def flow(self, uid: str) -> Flow | None:
        return self._flows.get(uid)

    def contradicts(self, spec: JobSpec) -> str:
        """Why the flows of a job cannot be; empty: they can."""
        if not spec.places:
            return "it has no flows"
        known = ((flow, self._flows.get(flow.uid, flow)) for flow in spec.flows)
        others = any(flow.fragment != other.fragment for flow, other in known)
        return "a flow of that name is another one" if others else ""

    def lacks(self, uid: str) -> bool:
        """Whether the log has not come to a flow yet."""
        return uid not in self._flows and uid not in self._ended

    def has_ended(self, uid: str) -> bool:
        """Whether a flow is over; False also for one that the log has not come to yet."""
        return uid in self._ended

    def bootstrapped_at(self, uid: str) -> str:
        """The address of the node that bootstrapped a job group; empty if the log does not know it (any
        more)."""
        return self._bootstrapped_at.get(uid, "")

    def is_replicated(self, uid: str) -> bool:
        """Whether the job group of a flow is: that of a SELECT is not."""
        spec = self.ever(job_of(self.job_groups.of(uid) or ""))
        return spec is not None and spec.replicated

    def to_bootstrap(self, agent_id: str) -> tuple[str, ...]:
        """Job groups of key ranges that this agent is to bootstrap, unless it has: they have never moved."""
        return tuple(uid for uid in self.job_groups.named(agent_id) if self.leader(uid) is not None)

    def unbegun(self) -> tuple[tuple[str, RangeGroup], ...]:
        """The job groups of key ranges that nobody has bootstrapped yet, as far as the log says."""
        return tuple(
            (uid, leader) for uid, leader in self.job_groups.unbegun() if self.leader(uid) is not None
        )

    def is_enrolled(self, address: str, now_ms: int) -> bool:
        """Whether a member is at an address whose key holds; without keys everybody is taken for one."""
        return self.roster is None or bool(self.keys_at(address, now_ms))

    def keys_at(self, address: str, now_ms: int) -> tuple[bytes, ...]:
        """The keys of the members at an address, as far as they hold."""
        if self.roster is None:
            return ()
        found = [self.roster.named("agent", member.name) for member in self.there(address)]
        return tuple(one.key for one in found if one is not None and one.valid(now_ms / 1_000))

    def ever(self, uid: str) -> JobSpec | None:
        """A job, even if it is dropped, until it is forgotten."""
        return self._jobs.get(uid)

    def leader(self, uid: str) -> str | None:
        """Where the job group of a job, or of its key range, and of its flows is; None when neither is
        left."""
        job = job_of(uid)
        if (program := self.program(job)) is not None:
            return program.master or None if uid == job else self.job_groups.address(uid)
        if job not in self._jobs or (job in self._dropped and not self.job_groups.flows(uid)):
            return None
        if uid == job:
            return self._jobs[job].leader
        return self.job_groups.address(uid)

    def readers(self, uid: str) -> tuple[JobSpec, ...]:
        """The jobs that are attached to a flow."""
        named = self._attached.get(uid, ())
        return tuple({job: self._versions[job][version] for job, version in named}.values())

    def attached(self, uid: str) -> tuple[JobSpec, ...]:
        """All versions of jobs that are attached to a flow."""
        return tuple(self._versions[job][version] for job, version in self._attached.get(uid, ()))

    def idle_flows(self) -> tuple[str, ...]:
        """Flows that no job is attached to."""
        return tuple(uid for uid, jobs in self._attached.items() if not jobs)

    def homes(self, table: str) -> tuple[str, ...]:
        """The job groups of the shards of a table, in their order; none: it has no shards. They are those of
        the key ranges that the job has by the table's entry, and the job's own for a range without one."""
        return self._homes.get(table, ())

    def read_by(self, uid: str) -> tuple[str, ...]:
        """Names of the jobs that read this one (FROM JOB)."""
        jobs = [spec for one in self._over_jobs if (spec := self.job(one)) is not None]
        return tuple(sorted({spec.name for spec in jobs if uid in spec.plan.reads}))

    def find_job(self, name: str, creator: str) -> JobSpec | None:
        """The job of that name (``_of_name``)."""
        return _of_name(self.jobs(), name, creator)

    def programs(self) -> tuple[ProgramSpec, ...]:
        """Jobs in Python that are not dropped."""
        return tuple(spec for uid, spec in self._programs.items() if uid not in self._dropped)

    def program(self, uid: str) -> ProgramSpec | None:
        return None if uid in self._dropped else self._programs.get(uid)

    def has_program(self, uid: str) -> bool:
        """Whether the log has come to a job in Python, which may be dropped."""
        return uid in self._programs or uid in self._dropped

    def find_program(self, name: str, creator: str) -> ProgramSpec | None:
        """The job in Python of that name (``_of_name``)."""
        return _of_name(self.programs(), name, creator)

    def aggregates(self) -> tuple[OwnSpec, ...]:
        """Aggregates of people's own that queries may name."""
        return tuple(self._aggregates.values())

    def aggregate(self, uid: str) -> OwnSpec | None:
        return self._aggregates.get(uid)

    def has_aggregate(self, uid: str) -> bool:
        """Whether the log has come to an aggregate, which may be dropped."""
        return uid in self._aggregates or uid in self._dropped

    def find_aggregate(self, name: str, creator: str) -> OwnSpec | None:
        """The aggregate of that name (``_of_name``)."""
        return _of_name(self.aggregates(), name, creator)

    def outputs(self, job: str = "") -> tuple[OutputSpec, ...]:
        """The outputs that are not dropped: of a job, or all."""
        jobs = [self._outputs_of.get(job, {})] if job else list(self._outputs_of.values())
        return tuple(self._outputs[uid] for of in jobs for uid in of)

    def with_outputs(self) -> tuple[str, ...]:
        """The jobs that have outputs."""
        return tuple(self._outputs_of)

    def output(self, uid: str) -> OutputSpec | None:
        return None if uid in self._dropped else self._outputs.get(uid)

    def is_rekeying_paused(self, uid: str) -> bool:
        """Whether rows of a table get no new key for now."""
        return uid in self._paused

    def has_output(self, uid: str) -> bool:
        """Whether the log has come to an output, which may be dropped."""
        return uid in self._outputs or uid in self._dropped

    def find_output(self, name: str, creator: str) -> OutputSpec | None:
        """The output of that name (``_of_name``)."""
        return _of_name(self.outputs(), name, creator)

    def highest(self, app: str) -> int:
        """The highest generation of all jobs with that app id (in hexadecimal)."""
        return self._generations.get(app, 0)

    def generation(self, name: str, creator: str) -> int:
        """The generation that a new job of this name gets: one above all earlier ones."""
        return 1 + self.highest(app_id(name, creator).hex())


def _but_key(table: OutputSpec) -> tuple[tuple[str, str], ...]:
    """The options of a table that stay when its key is changed."""
    return tuple(one for one in table.options if one[0] not in ("key", "of", "was", "homes"))


def _of_name(specs: Iterable[_Named], name: str, creator: str) -> _Named | None:
    """The creator's own, else the only one of that name."""
    named = [spec for spec in specs if spec.name == name]
    own = [spec for spec in named if spec.creator == creator]
    if own:
        return own[-1]
    return named[0] if len(named) == 1 else None


def encode_entry(entry: LogEntry) -> bytes:
    return msgspec.msgpack.encode(entry)


def decode_entry(data: bytes) -> LogEntry:
    entry: LogEntry = msgspec.msgpack.decode(data, type=LogEntry)
    return entry
