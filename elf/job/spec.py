"""What a job is, as values: flows, windows and job records that travel and are stored.

A *flow* is one immutable map fragment over one stream, one pane length and one key range (protocol 1.1). A
*job* reads flows; a *version* of a job is the vector of flows that it reads, with window, final fragment and
policy. A flow belongs to no job: whichever job brought it, every job with an equal fragment reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from elf.fields import (
    Address,
    FlowUid,
    Generation,
    Key,
    Micros,
    Name,
    Pane,
    Proper,
    Serial,
    Statement,
    Trees,
    replace,
)
from elf.ql.definition import Definition, why_not
from elf.ql.plan import Fragment, Plan
from elf.security.authored import Authorships
from elf.wire.clients import ONE_SHOT_PREFIX
from overlay.placement import CHOICES

START_OF_TIME = -(1 << 62)
"""Pane number before every pane (``live_from`` of a worker that had read nothing)."""

END_OF_TIME = 1 << 62
"""Pane number after every pane (a finite input that was read to its end seals up to here)."""

FLOWS_MAX = 1_024
"""Of a version of a job: one for each of its streams and key ranges."""
Replaced = Annotated[str, Meta(pattern=r"\A([0-9a-f]{32}\.[0-9]{1,15})?\Z")]
"""The uid of a job, or none."""


@lru_cache(1_024)
def app_id(name: str, creator: str, salt: int = 0) -> bytes:
    """The ring key of a job: first 128 bits of SHA-1(name, NUL, creator, salt). Paper, section 2.3."""
    return hashlib.sha1(f"{name}\0{creator}\0{salt}".encode()).digest()[:16]


def topics_of(name: str, creator: str) -> tuple[bytes, ...]:
    """The keys at which a job may have its job group; the first is its app id (``overlay.placement``)."""
    return tuple(app_id(name, creator, salt) for salt in range(CHOICES))


def stream_topic(name: str) -> bytes:
    """Key of a stream's tree, in which all its members are: first 128 bits of SHA-1("stream", NUL, name)."""
    return hashlib.sha1(f"stream\0{name}".encode()).digest()[:16]


def range_topic(name: str, creator: str, place: int) -> bytes:
    """The key of the tree of a job's key range ``place`` (1 and up; the first is at the job's own key): the
    app id with salts that no job group has, so that the ranges' roots are spread over the ring.
    """
    return app_id(name, creator, CHOICES - 1 + place)


def group_uid(job: str, place: int) -> str:
    """Uid of the job group of a job's key range; the first range is in the job's own. Likewise of a tree of a
    job in Python."""
    return f"{job}#{place}" if place else job


def place_of(group: str) -> int:
    """The opposite: the place of the key range, or of the tree."""
    return int(group.partition("#")[2] or 0)


def job_of(leader: str) -> str:
    """Uid of the job that a job group, or the job group of a key range, belongs to."""
    return leader.partition("#")[0]


def is_range(leader: str) -> bool:
    """Whether it is the job group of a key range after a job's first: it has only roots, no master."""
    return leader != job_of(leader)


def flow_uid(fragment: Fragment, generation: str) -> str:
    """The flow's unique name: a hash of everything that decides its contents, plus a generation. No two
    proposers may give the same generation, since an ended flow and a new one with equal contents are
    different."""
    bounds = (fragment.pane_us, fragment.lateness_us, fragment.revise_us, fragment.changes_us)
    text = repr((fragment.stream, fragment.columns, fragment.map_sql, *bounds, fragment.late_of))
    text += repr(fragment.range) if fragment.range != (0, 1) else ""
    text += repr(fragment.keep) if fragment.keep is not None else ""
    text += f"\0first {fragment.first!r}" if fragment.first is not None else ""
    text += f"\0{fragment.function.hash}" if fragment.function is not None else ""
    text += f"\0{fragment.reduce!r}" if fragment.reduce is not None else ""
    text += f"\0by {fragment.range_keys!r} {fragment.stage!r}" if fragment.stage is not None else ""
    text += f"\0wait {fragment.wait_us}" if fragment.wait_us is not None else ""
    text += "\0leap" if fragment.leap else ""
    text += "\0mirror" if fragment.mirror else ""
    text += f"\0since {fragment.since_us}" if fragment.since_us is not None else ""
    return hashlib.sha1(f"{text}\0{generation}".encode()).hexdigest()[:24]


def flow_topic(key: bytes, uid: str) -> bytes:
    """Key of a flow's tree on the ring: its own, and so near to ``key``, the place of its job group, that the
    same node is nearest to both."""
    return key[:12] + bytes.fromhex(uid)[:4]


class Flow(msgspec.Struct, frozen=True):
    """One immutable map fragment over one stream, with the place of its tree and of its root."""

    uid: FlowUid
    fragment: Fragment
    topic: Key
    """Key of its tree on the ring (16 bytes), see ``flow_topic``."""
    leader: Address
    """Address of its root: the node that commits its panes (the leader of its job group)."""


class Place(msgspec.Struct, frozen=True):
    """A flow as it travels, beside the definition of a job that reads it: all but its fragment, which each
    agent makes by itself. The fields are those of ``Flow``."""

    uid: FlowUid
    topic: Key
    leader: Address

    @classmethod
    def of(cls, flow: Flow) -> Place:
        return cls(flow.uid, flow.topic, flow.leader)


@dataclass(frozen=True)
class JobSpec:
    """A job as its creator asked for it.

    It may have come from elsewhere, and then be ``unusable``: no plan can be made of it. Messages and records
    with such a job cannot be read (``check``). An entry of the catalog log can, since it has a number: all
    agents skip it alike.
    """

    name: Proper
    creator: Name
    generation: Generation
    definition: Definition
    places: Annotated[tuple[Place, ...], Meta(max_length=FLOWS_MAX)] = ()
    """Of its flows, one for each of ``plan.fragments``, in that order; none before they are proposed."""
    version: Serial = 1
    master: Address = ""
    """Address of its master; empty until the log has the job."""
    roots: Annotated[tuple[Address, ...], Meta(max_length=FLOWS_MAX)] = ()
    """Where the job groups of the key ranges after the first are bootstrapped: the nodes at
    ``range_topic``."""
    authors: Authorships = ()
    """The signed statements that it came of, CREATE first, where the fleet has keys
    (``elf.job.catalog.authors``)."""
    replaces: Replaced = ""
    """Uid of the job of that name which is over exactly when the catalog log has this one."""
    scale: tuple[Trees, Trees] | None = None
    """As many trees as it needs, of so many at least and at most (protocol 5.15); None: as its query says."""

    @cached_property
    def unusable(self) -> str:
        """Why no plan can be made of it, or none with these flows; empty: one can."""
        why = why_not(self.definition)
        if not why and len(self.places) not in (0, len(self.plan.fragments)):
            why = f"{len(self.places)} flows for the {len(self.plan.fragments)} fragments of its plan"
        return f"job {self.name}: {why}" if why else ""

    def check(self) -> None:
        """Raises ``ValueError``, as a decoder does, where it is unusable."""
        if self.unusable:
            raise ValueError(self.unusable)

    @property
    def plan(self) -> Plan:
        """Raises ``QueryError`` where it is unusable."""
        return self.definition.plan

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """What computes its fragments; nothing where it is unusable."""
        if self.unusable:
            return ()
        pairs = zip(self.places, self.plan.fragments, strict=False)
        return tuple(Flow(one.uid, fragment, one.topic, one.leader) for one, fragment in pairs)

    def with_flows(self, flows: Iterable[Flow]) -> JobSpec:
        """The same, with its fragments computed by these flows."""
        return replace(self, places=tuple(map(Place.of, flows)))

    @property
    def leader(self) -> str:
        """Address of the node that assembles its windows."""
        return self.master or self.flows[0].leader

    @property
    def replicated(self) -> bool:
        """Whether its job group is a Raft group; a SELECT does not need one, as it can be asked again."""
        return not self.name.startswith(ONE_SHOT_PREFIX)

    @property
    def uid(self) -> str:
        """App id and generation: DROP and CREATE under one name are different jobs."""
        return f"{app_id(self.name, self.creator).hex()}.{self.generation}"


def misnamed(spec: JobSpec) -> tuple[str, ...]:
    """Uids of flows that a version of a job names, and that do not say what is in them (protocol 1.1): they
    are those of other versions, or of nothing."""
    names = (flow_uid(flow.fragment, f"{spec.uid}.{spec.version}.{n}") for n, flow in enumerate(spec.flows))
    return tuple(flow.uid for flow, name in zip(spec.flows, names, strict=True) if flow.uid != name)


VersionState = Literal["preparing", "committed", "finished", "aborted"]


class VersionRecord(msgspec.Struct, frozen=True):
    """A version of a job as its job group keeps it (``elf.job.group.versions``). All moments are event time,
    in µs."""

    spec: JobSpec
    """Its ``version`` is the number; given once, never again."""
    state: VersionState = "preparing"
    first_pane: Pane | None = None
    """Windows start here or later. Chosen once, at COMMIT."""
    after_us: Micros | None = None
    """Windows that end by here belong to the version before, whose state this one continues."""
    until_us: Micros = END_OF_TIME
    """Windows that start here or later belong to the next version."""
    ends_us: Micros = END_OF_TIME
    """The last of its windows ends by here."""
    cut_us: Micros = END_OF_TIME
    """Its windows that end later are skipped."""
    landmarks: tuple[Micros, ...] = ()
    note: Statement = ""
    """What made it, and why it was aborted; for people."""
    by_itself: bool = False
    """Whether no person has asked for it."""

    def __post_init__(self) -> None:
        self.spec.check()
