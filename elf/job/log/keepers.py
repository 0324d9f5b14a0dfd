"""Keeping the stream log: what the records of its Raft group mean, and who should be in the group.

The log is kept by up to five agents, its *keepers*: the voters of one Raft group (``overlay.raft``). A
record is a *wish* (join, leave, add, drop) with who asked for it. When it is committed every keeper does the
same with it: at most one entry of the log, or a refusal. A keeper's own log here is never stored: after a
restart the group says its snapshot and its records again, and it comes to the same. So nothing is applied
twice, whatever was in what an agent stored while it followed.

A state holds every entry there ever was, but of jobs that are over no more than is needed
(``elf.job.log.lasting``): some 200 bytes each.

**Founding.** Only a node that was started without a bootstrap, and belongs to no cluster, founds the group.

**Who keeps** (``wanted``). The leader wants the largest odd number of keepers that lives, five at most: a
group of two dies with either, so of two agents the founder keeps the log alone, and a group of four is no
safer than one of three. It stays with those it has, prefers places (region, rack) that it has not yet, then
the nearest on the ring. A keeper that was silent for ``grace_ms`` is replaced; deaths alone never make three
keepers one. Members change one at a time, and never to a group whose majority is not heard
(``overlay.raft.changes``). On its way from one to three a group is two for as long as the third takes to
enter.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from elf.errors import UserError
from elf.job.effects import Effect, Send
from elf.job.log.growing import grow
from elf.job.log.streamlog import StreamLog
from elf.job.messages.entries import LogEntry
from elf.job.messages.following import Refused
from elf.job.messages.wishes import JoinStream, Wish

LOG_GROUP: Final = hashlib.sha1(b"elf stream log").digest()[:16]
"""Key of the group that keeps the log."""
KEEPERS_MAX: Final = 5


class Wished(msgspec.Struct, frozen=True, array_like=True):
    """A record: what was wished, by whom (an address), and through which keeper in which of its lives."""

    wish: Wish
    asker: str
    keeper: str
    life: int


class _State(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot of the group holds."""

    cluster_uid: str
    entries: tuple[LogEntry, ...]


_state_of: Final = msgspec.msgpack.Decoder(_State).decode
_wished_of: Final = msgspec.msgpack.Decoder(Wished).decode
encode: Final = msgspec.msgpack.Encoder().encode


def founding(cluster_uid: str, entries: Sequence[LogEntry]) -> bytes:
    """The state with which the group begins."""
    return encode(_State(cluster_uid, tuple(entries)))


class KeptLog:
    """The log as its group has decided it: at each keeper the same at the same index."""

    def __init__(self, address: str, life: int) -> None:
        self.log = StreamLog()
        self.cluster_uid = ""
        self._granted: list[str] = []
        self._me = (address, life)

    def install(self, state: bytes) -> list[Effect]:
        """The state is now this one."""
        told = _state_of(state)
        self.cluster_uid, self.log = told.cluster_uid, StreamLog(told.entries)
        return []

    def apply(self, record: bytes) -> list[Effect]:
        """A record is committed. Who asked is told by the keeper that took the wish, in the life in which it
        did: not again by those that hear of old records after a restart."""
        wished = _wished_of(record)
        ours = (wished.keeper, wished.life) == self._me
        try:
            grow(self.log, wished.wish)
        except UserError as refused:
            return [refusal(wished.asker, wished.wish, refused)] if ours else []
        if ours:
            self._granted.append(wished.asker)
        return []

    def take_granted(self) -> list[str]:
        """Who is to hear from us that its wish was granted."""
        granted, self._granted = self._granted, []
        return granted

    def state(self, index: int = 0) -> bytes:
        """The state now, for a snapshot: all entries, of jobs that are over their tombstones alone."""
        self.log.forget()
        return founding(self.cluster_uid, self.log.after(0, self.log.last))


def refusal(asker: str, wish: Wish, why: UserError) -> Send:
    """Tell an agent that it may not join."""
    named = (wish.agent_id, wish.incarnation) if isinstance(wish, JoinStream) else ("", 0)
    return Send(asker, Refused(agent_id=named[0], text=str(why), incarnation=named[1]))


def wanted(
    voters: Sequence[str],
    gone: Collection[str],
    candidates: Sequence[str],
    place_of: Callable[[str], str],
    most: int = KEEPERS_MAX,
) -> tuple[str, ...]:
    """Who should be a voter. ``voters``: who is, the leader first; ``gone``: those of them that are dead for
    long, or want to go; ``candidates``: live others, the nearest first.
    """
    chosen = [address for address in voters if address not in gone]
    chosen += apart(chosen, candidates, place_of, most - len(chosen))
    size = (min(len(chosen), most) + 1) // 2 * 2 - 1
    if size < 1 or (gone and size < min(3, len(voters))):
        return tuple(voters)
    return tuple(chosen[:size])


def apart(
    chosen: Sequence[str], candidates: Sequence[str], place_of: Callable[[str], str], count: int
) -> list[str]:
    """Up to so many of the candidates: from places (region, rack) where the fewest of all that are chosen
    stand, and as they come."""
    places = Counter(place_of(address) for address in chosen)
    rest, found = list(candidates), list[str]()
    while rest and len(found) < count:
        best = min(rest, key=lambda address: places[place_of(address)] if place_of(address) else 0)
        rest.remove(best)
        found.append(best)
        places[place_of(best)] += 1
    return found
