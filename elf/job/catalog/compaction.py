"""What remains of the catalog log when jobs are over: tombstones, however large their plans and tables were.

Entries are numbered, followers ask for those after a number, and voters begin with all of them; so none is
ever removed. An entry that nothing needs any more is **forgotten**: a tombstone takes its number.

    JobAdded, ProgramAdded   ─▶ JobDropped       of a dropped job, once no flow that it brought runs
    OutputAdded              ─▶ JobDropped       of an output that is dropped, or whose job is
    AggregateAdded           ─▶ AggregateAdded   without its text, of one that is dropped or replaced
    VersionAdded             ─▶ VersionEnded     likewise; or of a version that is over, of a job that lives

Tombstones may stand twice, and before what they end, so a log in which only some entries are forgotten is as
good. All others stay: members, the end of flows, where job groups moved, keys and their revocations.

**What later rules need** remains: that a job is over (nothing is added under its uid again, nobody reads it),
its generation (in the uid; a new job of that name gets a higher one), that its flows have ended (what still
comes for them is refused, and they are not "to come"), who has left, every number, which signed statements
were used. What nobody can ask for is gone: the plan, who bootstrapped the job, where its job group and its
key ranges were.

**Not forgotten**, since it decides what runs, or is shown:

- the first entry of a job that is not dropped, and its newest version (of a paused job too);
- an entry that *brought* a flow, as the first that named it: until the flow has ended, as the entry says in
  whose job group it is, and until no other kept entry names the flow, which would else be taken for the
  bringer;
- versions that are the first over a key range, until the whole job is forgotten: they say who bootstraps the
  job group of that.

Each of these conditions, once true, stays true. So what is forgotten is a function of the log, not of the
order or moment of forgetting: voters reach the same state from the same records, from whichever state they
began. An agent that was away learns what it must. If it still runs a job, it has the job's entry in its own
copy of the log, so the tombstone comes later, under its own number, and so does the end of its flows. If it
has not come to the job's entry, and leads or belongs to the job group already, it finds a tombstone instead:
the job was dropped meanwhile, and the agent gives it up as on a drop.

An agent stores entries as it heard them, and tombstones in their place with those that come later.

A log forgets before it grows, not at the tombstone: those that are told of a tombstone need what the job was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from elf.job.catalog.authors import nonces_of
from elf.job.messages.log import (
    AggregateAdded,
    JobAdded,
    JobDropped,
    LogEntry,
    OutputAdded,
    ProgramAdded,
    VersionAdded,
    VersionEnded,
)
from elf.job.spec import JobSpec

Version = tuple[str, int]
"""A job's uid, and the number of a version; 0 for a job in Python, an output and an aggregate."""


def tombstone(entry: LogEntry) -> LogEntry:
    """The tombstone that replaces an entry once it is forgotten; the entry itself if it never is."""
    match entry:
        case JobAdded() | ProgramAdded() | OutputAdded():
            return JobDropped(seq=entry.seq, uid=entry.spec.uid, nonces=nonces_of(entry.spec))
        case AggregateAdded():
            return AggregateAdded(seq=entry.seq, spec=entry.spec.forgotten)
        case VersionAdded():
            uid, version = entry.spec.uid, entry.spec.version
            return VersionEnded(seq=entry.seq, uid=uid, version=version, nonces=nonces_of(entry.spec))
        case _:
            return entry


class Log(Protocol):
    """What is over, according to a log."""

    def ever(self, uid: str) -> JobSpec | None: ...
    def is_dropped(self, uid: str) -> bool: ...
    def is_over(self, uid: str, version: int) -> bool: ...
    def has_ended(self, uid: str) -> bool: ...


class _Kept(NamedTuple):
    """An entry with a plan. ``flows``: those that it names and that had not ended when it came; ``founds``:
    it is the first over a key range."""

    seq: int
    flows: tuple[str, ...] = ()
    founds: bool = False


class Compaction:
    """The entries of one log that have plans and are not forgotten."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[int, _Kept]] = {}
        """By job and version, in the order in which they came."""
        self._named: dict[str, dict[Version, None]] = {}
        """For each flow, the versions that name it; the first one has brought it."""
        self._look: dict[str, None] = {}
        """Jobs that have changed since it was last checked what can be forgotten."""

    def add(self, seq: int, spec: JobSpec, flows: Iterable[str], *, founds: bool = False) -> None:
        """Add an entry about a version of a job; ``flows``: those that it names and that have not ended."""
        kept = _Kept(seq, tuple(flows), founds)
        self._kept.setdefault(spec.uid, {})[spec.version] = kept
        for flow in kept.flows:
            self._named.setdefault(flow, {})[spec.uid, spec.version] = None
        self.changed(spec.uid)

    def add_plain(self, seq: int, uid: str) -> None:
        """Add an entry without flows."""
        self._kept.setdefault(uid, {})[0] = _Kept(seq)
        self.changed(uid)

    def changed(self, uid: str) -> None:
        """Something of a job may be over."""
        if uid in self._kept:
            self._look[uid] = None

    def ended(self, flow: str) -> None:
        """A flow has ended."""
        if flow in self._named:
            self.changed(self._bringer(flow)[0])

    def named_by(self, flow: str) -> Iterable[Version]:
        """The versions that name a flow; they may be over."""
        return self._named.get(flow, ())

    def versions(self, uid: str) -> Iterable[int]:
        """The versions of a job that are not forgotten; they may be over."""
        return self._kept.get(uid, ())

    def keeps(self, uid: str) -> bool:
        """Whether anything of a job is not forgotten."""
        return uid in self._kept

    def forget(self, log: Log) -> list[int]:
        """The numbers of entries that are to be forgotten now; each is returned once."""
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
        old = [v for v in list(kept)[1:] if v != newest and log.is_over(uid, v) and not kept[v].founds]
        return [v for v in old if self._is_free((uid, v), (uid, v).__eq__, log)]

    def _is_free(self, version: Version, ours: Callable[[Version], bool], log: Log) -> bool:
        """Whether all flows that an entry has brought have ended, and only our entries name them."""
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
