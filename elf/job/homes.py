"""The jobs that this node is the home of: root of their flow, master of the job, publisher of its windows.

A home makes a job's record durable before it tells anybody; asks the stream log's founder for the entry until
it sees it; hears the members' watermarks; commits panes, then windows; publishes each window once a revision.
*Unknown is never new*: ``create`` is called only for a job that the log does not know.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import msgspec

from elf.job.contributions import from_bytes, to_bytes
from elf.job.effects import Effect, Multicast, Prune, ReadWindows, SaveJob, Send
from elf.job.events import PanesCommitted, WindowsCommitted, WindowsRead
from elf.job.history import Segment
from elf.job.master import JobState, Master
from elf.job.messages import (
    AddJob,
    Answer,
    Committed,
    CreateJob,
    DropJob,
    DropJobEntry,
    Inspect,
    JobFacts,
    JobFailed,
    Offer,
    Progress,
    SendAgain,
    Slice,
    SubscribeJob,
    TreeEdge,
    Verdict,
    WindowResult,
)
from elf.job.placing import Here, Place, Placing
from elf.job.root import Root, RootSettings
from elf.job.spec import END_OF_TIME, START_OF_TIME, Flow, JobSpec, app_id, flow_uid
from elf.job.streamlog import StreamLog
from elf.job.uplink import piece_of

LEASE_MS = 10_000
"""A subscriber that does not renew for so long is forgotten."""
ORPHAN_MS = 30_000
"""A one-shot SELECT's job that nobody reads for so long is dropped."""
ONE_SHOT_PREFIX = "_select_"
PRUNE_MS = 60_000
WINDOWS_KEPT = 20_000
"""The last windows of a job that its home keeps."""


@dataclass
class _Home:
    master: Master
    subscribers: dict[str, int] = field(default_factory=dict)
    creator: CreateJob | None = None
    read_ms: int = 0
    published_us: int = START_OF_TIME
    parents: dict[int, str] = field(default_factory=dict)
    failure: str = ""
    marks: deque[tuple[int, int]] = field(default_factory=deque)
    """(when, pane below which all was assembled then): what lies behind the first may be forgotten."""


@dataclass(frozen=True)
class StoredJob:
    """A job's record from the store, with what was committed of it."""

    spec: JobSpec
    state: str
    first_pane: int | None
    segments: tuple[tuple[int, int, int, bytes], ...] = ()
    assembled_us: int | None = None


class Homes:
    """See the module's docstring. ``founder`` tells where the stream log's founder is now."""

    def __init__(self, address: str, log: StreamLog, settings: RootSettings) -> None:
        self._address = address
        self._log = log
        self._settings = settings
        self._homes: dict[str, _Home] = {}
        self._dropping: set[str] = set()
        self._next_ms = 0
        self._placing = Placing()
        self.generations: dict[tuple[str, str], int] = {}

    def restore(self, jobs: tuple[StoredJob, ...], now_ms: int) -> list[Effect]:
        """Go on with the jobs of an earlier life."""
        found: list[Effect] = []
        for job in jobs:
            spec = job.spec
            self._count(spec)
            if job.state == "dropped":
                if not self._log.is_dropped(spec.uid):
                    self._dropping.add(spec.uid)
                continue
            segments = [
                Segment(a, b, revision, from_bytes(m), now_ms) for a, b, revision, m in _latest(job.segments)
            ]
            root = self._root(spec, segments)
            state: JobState = "active" if job.state == "active" else "preparing"
            master = Master(
                spec, root, now_ms, state=state, first_pane=job.first_pane, assembled_us=job.assembled_us
            )
            if self._log.job(spec.uid) is not None:
                master.waiting_since_ms = now_ms
            self._homes[spec.uid] = _Home(master, read_ms=now_ms)
            found.extend(master.recover())
        return found

    def _root(self, spec: JobSpec, segments: list[Segment]) -> Root:
        root = Root(spec.flows[0], self._settings, segments)
        root.set_roster(self._log.members(spec.flows[0].fragment.stream), self._log.last)
        return root

    def _count(self, spec: JobSpec) -> None:
        named = (spec.name, spec.creator)
        self.generations[named] = max(self.generations.get(named, 0), spec.generation)

    # -- life of a job ---------------------------------------------------------------------------------------

    def where(self, request: CreateJob, now_ms: int) -> Place:
        """Where a job that the log does not know is to have its home."""
        asked = request.spec
        for home in self._homes.values():
            if (home.master.spec.name, home.master.spec.creator) == (asked.name, asked.creator):
                return Here(home.master.root.flow.topic)
        return self._placing.where(request, len(self._homes), now_ms)

    def create(self, request: CreateJob, topic: bytes, now_ms: int) -> tuple[JobSpec | None, list[Effect]]:
        """Found a job here, with its tree at ``topic``; (the job, effects), or (None, the refusal)."""
        asked = request.spec
        for home in self._homes.values():
            other = home.master.spec
            if (other.name, other.creator) == (asked.name, asked.creator):
                if (
                    home.creator is not None
                    and home.creator.id == request.id
                    and home.creator.origin == request.origin
                ):
                    return None, []
                return None, [refusal(request)]
        named = (asked.name, asked.creator)
        generation = 1 + max(self.generations.get(named, 0), self._log.generation(*named) - 1)
        key = app_id(asked.name, asked.creator)
        uid = flow_uid(asked.plan.fragment, f"{key.hex()}.{generation}")
        flow = Flow(uid, asked.plan.fragment, topic, self._address)
        spec = replace(asked, generation=generation, flows=(flow,))
        self._count(spec)
        master = Master(spec, self._root(spec, []), now_ms)
        self._homes[spec.uid] = _Home(master, creator=request, read_ms=now_ms)
        self._next_ms = now_ms
        return spec, [SaveJob(spec, "preparing", None)]

    def logged(self, spec: JobSpec, now_ms: int) -> None:
        """The stream log has the job: PREPARE is under way."""
        self._placing.placed(spec.name, spec.creator)
        home = self._homes.get(spec.uid)
        if home is not None:
            home.master.waiting_since_ms = now_ms

    def roster_changed(self, stream: str) -> None:
        for home in self._homes.values():
            if home.master.root.flow.fragment.stream == stream:
                home.master.root.set_roster(self._log.members(stream), self._log.last)

    def drop(self, uid: str) -> list[Effect]:
        home = self._homes.pop(uid, None)
        if home is None:
            return []
        self._dropping.add(uid)
        self._next_ms = 0
        return home.master.drop()

    def asked_to_drop(self, request: DropJob) -> list[Effect]:
        if request.uid not in self._homes and request.uid not in self._dropping:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        return [*self.drop(request.uid), Send(request.origin, Answer(id=request.id))]

    # -- what members say ------------------------------------------------------------------------------------

    def hosts(self, flow: str) -> bool:
        return self._of_flow(flow) is not None

    def topics(self) -> tuple[bytes, ...]:
        """The trees that this node is the root of."""
        return tuple(home.master.root.flow.topic for home in self._homes.values())

    def _of_flow(self, flow: str) -> _Home | None:
        return next((h for h in self._homes.values() if h.master.root.flow.uid == flow), None)

    def heard(self, progress: Progress, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for report in progress.flows:
            home = self._of_flow(report.flow)
            if home is not None:
                home.master.root.hear(progress.member, report, now_ms)
                home.parents[progress.member] = report.parent
                found.extend(self._advance(home, now_ms))
        return found

    def take(self, message: Slice, now_ms: int) -> list[Effect]:
        home = self._of_flow(message.flow)
        if home is None:
            return []
        home.master.root.take(piece_of(message))
        return self._advance(home, now_ms)

    def offered(self, sender: str, offer: Offer, now_ms: int) -> list[Effect]:
        home = self._of_flow(offer.flow)
        if home is None:
            return []
        root = home.master.root
        found: list[Effect] = []
        for start, end in offer.panes:
            verdict = root.verdict(offer.member, start, end, now_ms)
            if verdict != "wait":
                found.append(Send(sender, Verdict(flow=offer.flow, start=start, end=end, verdict=verdict)))
        return found

    # -- progress --------------------------------------------------------------------------------------------

    def _advance(self, home: _Home, now_ms: int) -> list[Effect]:
        master = home.master
        found: list[Effect] = []
        if master.state == "preparing":
            members = self._log.members(master.root.flow.fragment.stream)
            prepared = master.prepare(members, now_ms)
            found.extend(prepared)
            if prepared and home.creator is not None:
                found.append(self._created(home, home.creator))
                home.creator = None
        found.extend(master.propose(now_ms))
        return found

    def _created(self, home: _Home, request: CreateJob) -> Effect:
        facts = self._facts(home, ())
        return Send(request.origin, Answer(id=request.id, body=msgspec.msgpack.encode(facts)))

    def panes_committed(self, event: PanesCommitted, now_ms: int) -> list[Effect]:
        done = event.done
        home = self._of_flow(done.flow.uid)
        if home is None:
            return []
        segment, found = home.master.panes_committed(done, now_ms)
        word = Committed(
            flow=done.flow.uid,
            epoch=done.epoch,
            term=done.term,
            start=segment.start,
            end=segment.end,
            revision=segment.revision,
            members=to_bytes(segment.members),
        )
        return [*found, Multicast(done.flow.topic, word), *self._advance(home, now_ms)]

    def windows_committed(self, event: WindowsCommitted) -> list[Effect]:
        home = self._homes.get(event.done.spec.uid)
        if home is None:
            return []
        found = list(home.master.windows_committed(event.done))
        if event.result is not None:
            home.published_us = max(home.published_us, event.done.last_us)
            found.extend(Send(to, event.result) for to in home.subscribers)
        return found

    def failed(self, uid: str, text: str) -> list[Effect]:
        """A window of the job cannot be finished: its readers are told; the job stays as it is, for people to
        look at.
        """
        home = self._homes.get(uid)
        if home is None:
            return []
        home.failure = text
        return [Send(to, JobFailed(job=uid, text=text)) for to in home.subscribers]

    # -- readers ---------------------------------------------------------------------------------------------

    def subscribed(self, request: SubscribeJob, now_ms: int) -> list[Effect]:
        home = self._homes.get(request.uid)
        if home is None:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        home.subscribers[request.origin] = now_ms + LEASE_MS
        home.read_ms = now_ms
        found: list[Effect] = [Send(request.origin, Answer(id=request.id))]
        if request.after_us is not None and request.after_us < home.published_us:
            found.append(ReadWindows(home.master.spec, request, after_us=request.after_us))
        return found

    def inspected(self, request: Inspect) -> list[Effect]:
        home = self._homes.get(request.uid)
        if home is None:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        return [ReadWindows(home.master.spec, request, count=request.windows)]

    def windows_read(self, event: WindowsRead) -> list[Effect]:
        request = event.request
        if not isinstance(request, Inspect):
            return [Send(request.origin, result) for result in event.results]
        home = self._homes.get(request.uid)
        if home is None:
            return [Send(request.origin, Answer(id=request.id, error="no such job here any more"))]
        body = msgspec.msgpack.encode(self._facts(home, event.results))
        return [Send(request.origin, Answer(id=request.id, body=body))]

    def _facts(self, home: _Home, results: tuple[WindowResult, ...]) -> JobFacts:
        master = home.master
        pane_us = master.spec.plan.fragment.pane_us
        tree = []
        for member in self._log.members(master.root.flow.fragment.stream):
            sealed = master.root.sealed_of(member.number)
            tree.append(
                TreeEdge(
                    member.number,
                    member.name,
                    member.address,
                    home.parents.get(member.number, ""),
                    _event_time(sealed, pane_us),
                )
            )
        return JobFacts(
            master.spec,
            master.state,
            self._address,
            _event_time(master.first_pane, pane_us),
            _event_time(master.root.durable_to(), pane_us),
            tuple(tree),
            results,
            home.failure,
        )

    # -- time ------------------------------------------------------------------------------------------------

    def deadline(self, now_ms: int) -> int | None:
        waits = [self._next_ms] if self._unlogged() or self._homes else []
        waits += [at for h in self._homes.values() if (at := h.master.root.deadline(now_ms)) is not None]
        return min(waits, default=None)

    def _unlogged(self) -> list[JobSpec]:
        return [h.master.spec for h in self._homes.values() if self._log.job(h.master.spec.uid) is None]

    def tick(self, now_ms: int, founder: str | None) -> list[Effect]:
        found: list[Effect] = []
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + 1_000
            found.extend(self._remind(founder))
            found.extend(self._expire(now_ms))
        for home in list(self._homes.values()):
            found.extend(self._advance(home, now_ms))
            found.extend(self._ask_missing(home, now_ms))
            found.extend(self._prune(home, now_ms))
        return found

    def _remind(self, founder: str | None) -> list[Effect]:
        """What the stream log must say and does not say yet."""
        if founder is None:
            return []
        self._dropping = {uid for uid in self._dropping if not self._log.is_dropped(uid)}
        added = [Send(founder, AddJob(spec=spec)) for spec in self._unlogged()]
        return [*added, *(Send(founder, DropJobEntry(uid=uid)) for uid in self._dropping)]

    def _prune(self, home: _Home, now_ms: int) -> list[Effect]:
        """Forget panes that no window and no revision can want any more, and windows of long ago."""
        master = home.master
        window, assembled = master.spec.plan.window, master.assembled_us()
        if window is None or assembled is None or assembled >= END_OF_TIME:
            return []
        pane_us = master.spec.plan.fragment.pane_us
        if not home.marks or now_ms - home.marks[-1][0] >= PRUNE_MS:
            home.marks.append((now_ms, (assembled - window.size_us) // pane_us))
        if now_ms - home.marks[0][0] <= self._settings.revise_ms + PRUNE_MS:
            return []
        below = home.marks.popleft()[1]
        windows_us = assembled - WINDOWS_KEPT * window.slide_us
        return [Prune(master.root.flow.uid, below, master.spec.uid, windows_us)]

    def _expire(self, now_ms: int) -> list[Effect]:
        found: list[Effect] = []
        for uid, home in list(self._homes.items()):
            home.subscribers = {to: until for to, until in home.subscribers.items() if until > now_ms}
            one_shot = home.master.spec.name.startswith(ONE_SHOT_PREFIX)
            if one_shot and not home.subscribers and now_ms - home.read_ms > ORPHAN_MS:
                found.extend(self.drop(uid))
        return found

    def _ask_missing(self, home: _Home, now_ms: int) -> list[Effect]:
        if home.master.state != "active":
            return []
        root = home.master.root
        return [
            Send(address, SendAgain(flow=root.flow.uid, start=start, end=end))
            for member, start, end in root.missing(now_ms)
            if (address := root.address_of(member)) is not None
        ]

    # -- what it shows ---------------------------------------------------------------------------------------

    def jobs(self) -> tuple[Master, ...]:
        return tuple(home.master for home in self._homes.values())

    def check(self) -> None:
        for home in self._homes.values():
            home.master.root.check()


def refusal(request: CreateJob) -> Effect:
    """The answer to whoever creates a job that exists."""
    name = request.spec.name
    error = f"job {name} exists already; DROP JOB {name} first, or choose another name"
    return Send(request.origin, Answer(id=request.id, error=error))


def _event_time(pane: int | None, pane_us: int) -> int | None:
    if pane is None or not pane_us or not START_OF_TIME < pane < END_OF_TIME:
        return None
    return pane * pane_us


def _latest(rows: tuple[tuple[int, int, int, bytes], ...]) -> list[tuple[int, int, int, bytes]]:
    """For each pane its highest committed revision."""
    found: list[tuple[int, int, int, bytes]] = []
    for new in sorted(rows, key=lambda row: row[2]):
        kept = []
        for old in found:
            for a, b in ((old[0], min(old[1], new[0])), (max(old[0], new[1]), old[1])):
                if a < b:
                    kept.append((a, b, old[2], old[3]))
        found = [*kept, new]
    return sorted(found)
