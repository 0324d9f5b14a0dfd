"""What lasts of the catalog log: of a job that is over, tombstones, whatever its plans and tables were.

Entries are numbered, followers ask for those after a number, and voters begin with all of them; so none ever
goes. One that nothing needs any more is **forgotten**: its tombstone stands under its number instead.

    JobAdded, ProgramAdded   ─▶ JobDropped       of a dropped job, once no flow that it brought runs
    VersionAdded             ─▶ VersionEnded     likewise; or of a version that is over, of a job that lives

Tombstones may stand twice, and before what they end, so a log in which only some are forgotten is as good.
All others stay: members, the end of flows, where job groups moved.

**What later rules need** is there: that a job is over (nothing is added under its uid again, nobody reads
it), its generation (which is in the uid; a new job of that name gets one above), that its flows have ended
(what still comes of them is refused, and they are not "to come"), who has left, every number. What nobody can
ask for is gone: the plan, who bootstrapped it, where its job group and its key ranges were.

**What is not forgotten**, since it decides about what runs, or is shown:

- the first entry of a job that is not dropped, and the version that is its newest (of a paused one too);
- an entry that *brought* a flow, as the first that named it: until the flow has ended, as it says whose job
  group that is in, and until no other entry that is kept names it, which would else be taken for the bringer;
- versions over key ranges, until all of the job is forgotten: they say who bootstraps the job groups of
  those.

Each of these conditions, once it holds, holds for ever. So what is forgotten is a function of the log, not of
the order or the moment of forgetting: voters come to the same state from the same records, from whichever
state they began. And whoever was away learns what it must: an agent that still runs a job has the job's entry
in its own copy of the log, so the tombstone is after that, under its own number, and so is the end of its
flows. One that has not come to the job's entry, and is the job group or in the job group's group already,
finds a tombstone in its place: the job was dropped meanwhile, and it gives it up as it would then.

What an agent stores of the log stays as it heard it; it forgets again as it starts.

A log forgets before it grows, not at the tombstone: who is told of that is told by what the job was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from elf.job.messages.entries import JobAdded, JobDropped, LogEntry, ProgramAdded, VersionAdded, VersionEnded
from elf.job.spec import JobSpec

Version = tuple[str, int]
"""A job's uid, and the number of a version; 0 for a job in Python."""


def tombstone(entry: LogEntry) -> LogEntry:
    """What stands in the place of an entry once it is forgotten: of one that never is, itself."""
    match entry:
        case JobAdded() | ProgramAdded():
            return JobDropped(seq=entry.seq, uid=entry.spec.uid)
        case VersionAdded():
            return VersionEnded(seq=entry.seq, uid=entry.spec.uid, version=entry.spec.version)
        case _:
            return entry


class Log(Protocol):
    """What is over, as a log says."""

    def ever(self, uid: str) -> JobSpec | None: ...
    def is_dropped(self, uid: str) -> bool: ...
    def is_over(self, uid: str, version: int) -> bool: ...
    def has_ended(self, uid: str) -> bool: ...


class _Kept(NamedTuple):
    """An entry with a plan. ``flows``: those that it names, which had not ended when it came."""

    seq: int
    flows: tuple[str, ...] = ()
    has_ranges: bool = False


class Compaction:
    """The entries of one log that have plans and are not forgotten."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, _Kept]] = {}
        """By job and version, in the order in which they came."""
        self._named: dict[str, dict[Version, None]] = {}
        """Of each flow, the versions that name it; the first one has brought it."""
        self._look: dict[str, None] = {}
        """Jobs of which there was word since it was last seen what can be forgotten."""

    def add(self, seq: int, spec: JobSpec, flows: Iterable[str]) -> None:
        """An entry about a version of a job; ``flows``: those that it names and that have not ended."""
        kept = _Kept(seq, tuple(flows), any(flow.fragment.range[0] for flow in spec.flows))
        self._kept.setdefault(spec.uid, {})[spec.version] = kept
        for flow in kept.flows:
            self._named.setdefault(flow, {})[spec.uid, spec.version] = None
        self.changed(spec.uid)

    def add_program(self, seq: int, uid: str) -> None:
        self._kept.setdefault(uid, {})[0] = _Kept(seq)
        self.changed(uid)

    def changed(self, uid: str) -> None:
        """Something of a job may be over."""
        if uid in self._kept:
            self._look[uid] = None

    def ended(self, flow: str) -> None:
        """A flow has."""
        if flow in self._named:
            self.changed(self._bringer(flow)[0])

    def named_by(self, flow: str) -> Iterable[Version]:
        """The versions that name a flow, which may be over."""
        return self._named.get(flow, ())

    def versions(self, uid: str) -> Iterable[int]:
        """Those of a job that are not forgotten, which may be over."""
        return self._kept.get(uid, ())

    def keeps(self, uid: str) -> bool:
        """Whether anything of a job is not forgotten."""
        return uid in self._kept

    def forget(self, log: Log) -> list[int]:
        """The numbers of entries that are to be forgotten now: it is told once."""
        found: list[int] = []
        while self._look:
            uid, _ = self._look.popitem()
            kept = self._kept.get(uid, {})
            for version in self._over(uid, kept, log):
                entry = kept.pop(version)
                found.append(entry.seq)
                for flow in entry.flows:
                    self._unname(flow, (uid, version))
            if not kept:
                self._kept.pop(uid, None)
        return found

    def _over(self, uid: str, kept: dict[int, _Kept], log: Log) -> list[int]:
        """The versions of a job that can be forgotten: all, or some after the first."""
        if log.is_dropped(uid) and all(self._is_free((uid, v), lambda n: n[0] == uid, log) for v in kept):
            return list(kept)
        newest = getattr(log.ever(uid), "version", 0)
        old = [v for v in list(kept)[1:] if v != newest and log.is_over(uid, v) and not kept[v].has_ranges]
        return [v for v in old if self._is_free((uid, v), (uid, v).__eq__, log)]

    def _is_free(self, version: Version, ours: Callable[[Version], bool], log: Log) -> bool:
        """Whether all flows have ended that an entry has brought, and only entries of ours name them."""
        uid, number = version
        brought = [flow for flow in self._kept[uid][number].flows if ours(self._bringer(flow))]
        return all(log.has_ended(flow) and all(map(ours, self._named[flow])) for flow in brought)

    def _bringer(self, flow: str) -> Version:
        return next(iter(self._named[flow]))

    def _unname(self, flow: str, version: Version) -> None:
        named = self._named[flow]
        del named[version]
        if named:
            self.changed(self._bringer(flow)[0])
        else:
            del self._named[flow]
