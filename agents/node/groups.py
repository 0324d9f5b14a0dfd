"""The Raft groups of one agent: ``overlay.raft.Groups`` between the node and its disk, as a pure part
of the node.

Groups say what to write, and what may be said and done once that is durable. A write takes a while (an
fsync), and the loop must not wait for it; so writes leave as one ``Persist`` for the driver, which performs
it on a thread and hands ``Persisted`` back. Meanwhile everything that groups say waits here, in order, behind
it; what they write meanwhile goes into the next ``Persist`` as one transaction. So nothing is sent, and no
machine told, before what it rests on is on the disk, and a busy agent makes one fsync for many records, and
one message to each peer. A leader's records rest on nothing: other voters write them while it does (protocol
5.12).

What the records of a group mean is its *machine*'s to say: one object a group, told in the order of the
indices, from the group's snapshot on, at every start again. The catalog log's is ``ReplicatedLog``, that of a
job group ``JobGroupMachine``: all of a job group's meaning is in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import overlay as ring
from elf.job.catalog.voters import LOG_GROUP, ReplicatedLog
from elf.job.effects import Effect, Faulted, Skipped
from elf.job.group import records
from elf.job.group.port import Apply, Commit, InstallJobGroup, JobGroupEffect, SummariseJobGroup
from overlay import raft


@dataclass(frozen=True)
class Persisted:
    """Event: the last ``Persist`` is durable."""


COMPACT_BYTES: Final = 8 << 20
"""Bytes of records, or of twice the last state if that is more, after which a log is made a state."""

GroupStep = Effect | JobGroupEffect | raft.Send | raft.Persist
"""What comes out: messages and writes for the driver, and what machines want done."""


_Word = (
    raft.Installed
    | raft.Committed
    | raft.Reconfigured
    | raft.Elected
    | raft.Leading
    | raft.Following
    | raft.Accepted
    | raft.Rejected
    | raft.Readable
    | raft.CompactWanted
    | raft.Retired
)


class Machine(Protocol):
    """What the records of one group mean. Its state is a function of the snapshot and the records alone.

    Records and states come from peers. One that cannot be used is skipped, by its bytes alone, so all members
    skip the same (``Skipped``). It must never raise. ``unusable``: why the state could not be used; empty: it
    could. Such a machine makes no states, which would take the place of the right ones."""

    unusable: str

    def install(self, state: bytes) -> Sequence[GroupStep]:
        """The state is now this one."""

    def apply(self, record: bytes) -> Sequence[GroupStep]:
        """A record is committed."""

    def state(self, index: int) -> bytes | Sequence[GroupStep]:
        """The state now, for a snapshot at ``index``; or what is to be done to come by it, for
        ``GroupDesk.compact``."""


class JobGroupMachine:
    """Of a job group: here is only which job it is of, and what we want of it as its leader."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.uid = self.founder = self.unusable = ""
        self.is_program = False
        """Whether the job is one in Python."""
        self.flows: tuple[str, ...] = ()
        self.commits: dict[bytes, Commit] = {}
        """Those under way that we want as its leader, by their records."""
        self._whole: dict[bytes, bytes] = {}
        """What was too large to be told, by what was told in its place."""

    def install(self, state: bytes) -> list[JobGroupEffect | Skipped]:
        if not state:
            return []
        known = records.state_of(state)
        if isinstance(known, str):
            self.unusable = known
            return [Skipped("the state of a job group", known)]
        self.uid, self.founder, self.unusable = known.uid, known.founder, ""
        self.is_program = isinstance(known.job, records.ProgramKept)
        self._know(*known.bootstrapped)
        return [InstallJobGroup(self.key, state)]

    def _know(self, *flows: str) -> None:
        self.flows = tuple(dict.fromkeys((*self.flows, *flows)))

    def apply(self, data: bytes) -> list[JobGroupEffect | Skipped]:
        fact = records.record_of(data, self.uid)
        if isinstance(fact, str):
            self.commits.pop(data, None)
            return [Skipped("a record of a job group", fact)]
        if isinstance(fact, records.JobKept):
            self._know(*fact.bootstrapped)
        elif isinstance(fact, records.FlowKept):
            self._know(fact.flow)
        return [Apply(self.key, self._whole.pop(data, data), self.commits.pop(data, None))]

    def wants(self, commit: Commit) -> None:
        """It is on its way to the group."""
        self.commits[commit.record] = commit
        if commit.whole:
            self._whole[commit.record] = commit.whole

    def wants_no_more(self) -> None:
        """We lead it no more: another leader may commit the same panes with other contents, which are told by
        the same words."""
        self.commits.clear()
        self._whole.clear()

    def state(self, index: int) -> list[JobGroupEffect]:
        return [SummariseJobGroup(self.key, index, self.uid, self.flows, self.founder)]


class Machines:
    """The catalog log's machine, and those of ``job_groups``, by group; they are made when a group is first
    told of."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log
        self.job_groups: dict[bytes, JobGroupMachine] = {}

    def of(self, key: bytes) -> Machine:
        if key == LOG_GROUP:
            return self._log
        if key not in self.job_groups:
            self.job_groups[key] = JobGroupMachine(key)
        return self.job_groups[key]


@dataclass(frozen=True)
class Outputs:
    """``changed``: groups of whose standing there was word. ``rejected``: records that were proposed, and
    that their groups have not taken."""

    changed: tuple[bytes, ...] = ()
    rejected: tuple[tuple[bytes, bytes], ...] = ()


NOTHING: Final = Outputs()


class GroupDesk:
    """All groups of the node, each with its machine. ``leading``: the groups that we lead and all of which
    has come out here, with the term."""

    def __init__(self, groups: raft.Groups, machine_of: Callable[[bytes], Machine]) -> None:
        self.groups = groups
        self.leading: dict[bytes, int] = {}
        self._machine_of = machine_of
        self._bytes: dict[bytes, tuple[int, int]] = {}
        self._index: dict[bytes, int] = {}
        self._writing = False
        self._behind: list[raft.Send | _Word] = []
        self._waiting: list[raft.Effect] = []
        self._changed: set[bytes] = set()
        self._token = 0
        self._proposed: dict[int, bytes] = {}
        self._rejected: list[tuple[bytes, bytes]] = []

    # -- calls -----------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.start(now_ms), now_ms)

    def received(self, message: raft.Message, now_ms: int) -> list[GroupStep]:
        """A message that makes no sense to a group is dropped (``Faulted``). What the group has promised by
        then is on its way to the disk, as always: groups write what they change before they say it."""
        try:
            effects = self.groups.handle(raft.Received(message), now_ms)
        except Exception as error:
            self.groups.check()
            fault = Faulted(error, type(message).__name__, message.sender.address)
            return [fault, *self._take(self.groups.pending(), now_ms)]
        return self._take(effects, now_ms)

    def tick(self, now_ms: int) -> list[GroupStep]:
        due = self.deadline()
        if due is None or due > now_ms:
            return []
        return self._take(self.groups.handle(ring.Tick(), now_ms), now_ms)

    def deadline(self) -> int | None:
        return self.groups.deadline()

    def peer_down(self, address: str, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.peer_down(address, now_ms), now_ms)

    def create(self, key: bytes, state: bytes, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.create(key, state, (), now_ms), now_ms)

    def propose(self, key: bytes, record: bytes, now_ms: int, term: int = 0) -> list[GroupStep]:
        """Append a record, if a leader can be reached; with ``term``, in that term only. Records bear to
        stand twice."""
        self._token += 1
        self._proposed[self._token] = record
        return self._take(self.groups.propose(key, self._token, record, now_ms, term), now_ms)

    def compact(self, key: bytes, index: int, state: bytes, now_ms: int) -> list[GroupStep]:
        """The state at an index stands for all records up to it."""
        return self._take(self._compacted(key, index, state, now_ms), now_ms)

    def end(self, key: bytes, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.end(key, now_ms), now_ms)

    def invite(self, key: bytes, address: str, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.invite(key, [address], now_ms), now_ms)

    def remove(self, key: bytes, address: str, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.remove(key, address, now_ms), now_ms)

    def move(self, key: bytes, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.move(key, now_ms), now_ms)

    def transfer(self, key: bytes, address: str, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.transfer(key, address, now_ms), now_ms)

    def leave(self, now_ms: int) -> list[GroupStep]:
        return self._take(self.groups.leave(now_ms), now_ms)

    def holds(self, key: bytes) -> bool:
        """Whether we have a voter slot in a group."""
        return self.groups.holds(key)

    def held(self) -> tuple[bytes, ...]:
        """The groups in which we have one."""
        return self.groups.held()

    def standing(self, key: bytes) -> raft.Standing | None:
        """That of a group, if we have a voter slot in it."""
        return self.groups.standing(key)

    def voters(self, key: bytes) -> tuple[str, ...]:
        """The members of a group in which we are, by address."""
        standing = self.standing(key)
        return tuple(voter.address for voter in standing.membership.voters) if standing is not None else ()

    def take_outputs(self, *, log: bool) -> Outputs:
        """What there was since the last time, of the catalog log's group or of all others."""
        if not self._changed and not self._rejected:
            return NOTHING
        changed = {key for key in self._changed if (key == LOG_GROUP) is log}
        rejected = [one for one in self._rejected if (one[0] == LOG_GROUP) is log]
        self._changed -= changed
        self._rejected = [one for one in self._rejected if (one[0] == LOG_GROUP) is not log]
        return Outputs(tuple(sorted(changed)), tuple(rejected))

    @property
    def busy(self) -> bool:
        """Whether something is being written."""
        return self._writing

    # -- the order -------------------------------------------------------------------------------------------

    def persisted(self, now_ms: int) -> list[GroupStep]:
        """What was written is durable: say and do what waited for it."""
        self._writing = False
        behind, self._behind = self._behind, []
        return [*self._perform(behind, now_ms), *self._flow(now_ms)]

    def _take(self, effects: Sequence[raft.Effect], now_ms: int) -> list[GroupStep]:
        self._waiting.extend(effects)
        return self._flow(now_ms)

    def _flow(self, now_ms: int) -> list[GroupStep]:
        found: list[GroupStep] = []
        while self._waiting and not self._writing:
            batch, self._waiting = self._waiting, []
            writes = tuple(w for effect in batch if isinstance(effect, raft.Persist) for w in effect.writes)
            rest = [effect for effect in batch if not isinstance(effect, raft.Persist)]
            if writes:
                ahead: list[raft.Send] = []
                for effect in rest:
                    if isinstance(effect, raft.Send) and self.groups.ahead(effect, writes):
                        ahead.append(effect)
                    else:
                        self._behind.append(effect)
                self._writing = True
                found += [raft.Persist(writes), *self.groups.gathered(ahead)]
            else:
                found.extend(self._perform(rest, now_ms))
        return found

    def _perform(self, effects: Sequence[raft.Send | _Word], now_ms: int) -> list[GroupStep]:
        sends = [effect for effect in effects if isinstance(effect, raft.Send)]
        found: list[GroupStep] = [*self.groups.gathered(sends)]
        for effect in effects:
            if not isinstance(effect, raft.Send):
                found.extend(self._word(effect, now_ms))
        return found

    def _word(self, word: _Word, now_ms: int) -> Sequence[GroupStep]:
        """Tell the machine of a group what concerns it."""
        key = word.group
        match word:
            case raft.Installed():
                self._index[key] = word.index
                self._bytes[key] = (0, len(word.state))
                self._changed.add(key)
                return self._machine_of(key).install(word.state)
            case raft.Committed():
                return self._committed(key, word.entry, now_ms)
            case raft.CompactWanted():
                return self._compact(key, now_ms)
            case raft.Accepted():
                self._proposed.pop(word.token, None)
                return ()
            case raft.Rejected():
                if (record := self._proposed.pop(word.token, None)) is not None:
                    self._rejected.append((key, record))
                return ()
            case raft.Readable():
                return ()
            case raft.Leading():
                self.leading[key] = word.term
            case raft.Elected() | raft.Following() | raft.Retired():
                self.leading.pop(key, None)
        self._changed.add(key)
        return ()

    def _committed(self, key: bytes, entry: raft.Entry, now_ms: int) -> Sequence[GroupStep]:
        self._index[key] = entry.index
        if not entry.payload:
            return ()
        found = self._machine_of(key).apply(entry.payload)
        grown, last = self._bytes.get(key, (0, 0))
        self._bytes[key] = (grown + len(entry.payload), last)
        if grown + len(entry.payload) < max(COMPACT_BYTES, 2 * last):
            return found
        return [*found, *self._compact(key, now_ms)]

    def _compact(self, key: bytes, now_ms: int) -> Sequence[GroupStep]:
        self._bytes[key] = (0, self._bytes.get(key, (0, 0))[1])
        if self._machine_of(key).unusable:
            return ()
        state = self._machine_of(key).state(self._index[key])
        if not isinstance(state, bytes):
            return state
        self._waiting.extend(self._compacted(key, self._index[key], state, now_ms))
        return ()

    def _compacted(self, key: bytes, index: int, state: bytes, now_ms: int) -> list[raft.Effect]:
        """One that is too large for its group stands for nothing: its records stay, behind the last state
        that was not."""
        self._bytes[key] = (0, len(state))
        fits = len(state) <= self.groups.state_bytes_max
        return self.groups.compact(key, index, state, now_ms) if fits else []
