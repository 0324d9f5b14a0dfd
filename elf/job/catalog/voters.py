"""The voters of the catalog log: what the records of its Raft group mean, and who should be in the group.

Up to five agents are the log's *voters*: the voters of one Raft group (``overlay.raft``). A record is a
*proposal* (join, leave, add, drop) with its origin. When it is committed every voter does the same with it:
at most one entry of the log, or a refusal. A voter's own log here is never stored: after a restart the group
replays its snapshot and its records, with the same result. So nothing is applied twice, whatever an agent
stored as a follower.

A state holds every entry there ever was. Of jobs that are over it holds no more than is needed
(``elf.job.catalog.compaction``): some 200 bytes each.

**Bootstrapping.** Only a node that was started without contacts, and belongs to no cluster, bootstraps the
group.

**Who votes** (``wanted``). The leader wants the largest odd number of live voters, five at most: a group of
two dies with either, so of two agents the founder is the only voter, and a group of four is no safer than one
of three. The leader stays with the voters it has, prefers new places (region, rack), then the nearest on the
ring. A voter that was silent for ``grace_ms`` is replaced; deaths alone never make three voters one. Members
change one at a time, and never to a group whose majority is not heard (``overlay.raft.changes``). On its way
from one voter to three a group has two for as long as the third takes to enter.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from elf.errors import ElfBug, UserError
from elf.fields import Address, Name, Serial
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.effects import Effect, Faulted, Send, Skipped
from elf.job.messages.log import ChangeRoster, JoinStream, LogEntry, Proposal, Refused
from elf.security.certificates import Signed
from elf.security.roster import Trust

LOG_GROUP: Final = hashlib.sha1(b"elf stream log").digest()[:16]
"""Key of the log's Raft group."""
VOTERS_MAX: Final = 5


class Proposed(msgspec.Struct, frozen=True, array_like=True):
    """A record: the proposal, its origin (an address), and through which voter, in which of its lives, it
    came."""

    proposal: Proposal
    asker: Address
    voter: Address
    life: Serial


class _State(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot of the group holds."""

    cluster_uid: Name
    entries: tuple[LogEntry, ...]


_state_of: Final = msgspec.msgpack.Decoder(_State).decode
_proposed_of: Final[Callable[[bytes], Proposed]] = msgspec.msgpack.Decoder(Proposed).decode
encode: Final = msgspec.msgpack.Encoder().encode


def proposed_of(record: bytes) -> Proposed | str:
    """What a record says; or why it cannot be used, by its bytes alone, so all voters say the same."""
    try:
        return _proposed_of(record)
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)


def bootstrap(cluster_uid: str, entries: Sequence[LogEntry]) -> bytes:
    """The state with which the group begins."""
    return encode(_State(cluster_uid, tuple(entries)))


def with_keys(entries: Sequence[LogEntry], trust: Trust, signed: Sequence[Signed]) -> tuple[LogEntry, ...]:
    """The entries, and those of the certificates that the founder knows."""
    log = CatalogLog(entries, trust)
    for one in signed:
        grow(log, ChangeRoster(signed=one))
    return log.after(0, log.last)


class ReplicatedLog:
    """The log as its group has decided it: the same at each voter at the same index."""

    def __init__(self, address: str, life: int, trust: Trust | None = None) -> None:
        self._trust = trust
        self.log = CatalogLog(trust=trust)
        self.cluster_uid = ""
        self.unusable = ""
        """Why the state that this group begins with cannot be read; then we say nothing of the log."""
        self._granted: list[str] = []
        self._me = (address, life)

    def install(self, state: bytes) -> list[Effect]:
        """The state is now this one."""
        try:
            told = _state_of(state)
            log = CatalogLog(told.entries, self._trust)
        except (ValueError, TypeError, RecursionError, ElfBug) as error:
            self.unusable = str(error)
            return [Skipped("the state of the catalog log", self.unusable)]
        self.cluster_uid, self.log, self.unusable = told.cluster_uid, log, ""
        return []

    def apply(self, record: bytes) -> list[Effect]:
        """A record is committed. Only the voter that took the proposal answers its origin, and only in the
        life in which it took it: not again when old records are replayed after a restart.

        What cannot be used is skipped, by all voters alike. If the log itself fails at one, which is a bug,
        it begins again from the entries before, so that nothing of it is half there."""
        if self.unusable:
            return []
        proposed, before = proposed_of(record), self.log.last
        if isinstance(proposed, str):
            return [Skipped("a record of the catalog log", proposed)]
        ours = (proposed.voter, proposed.life) == self._me
        try:
            grow(self.log, proposed.proposal)
        except UserError as refused:
            return [refusal(proposed.asker, proposed.proposal, refused)] if ours else []
        except Exception as error:
            self.log = CatalogLog(self.log.after(0, before), self._trust)
            return [Faulted(error, type(proposed.proposal).__name__, proposed.asker)]
        if ours:
            self._granted.append(proposed.asker)
        return []

    def take_granted(self) -> list[str]:
        """Those whose proposal was granted and who are to hear it from us."""
        granted, self._granted = self._granted, []
        return granted

    def state(self, index: int = 0) -> bytes:
        """The state now, for a snapshot: all entries; of jobs that are over only the tombstones."""
        self.log.forget()
        return bootstrap(self.cluster_uid, self.log.after(0, self.log.last))


def refusal(asker: str, proposal: Proposal, why: UserError) -> Send:
    """Tell an agent that it may not join."""
    named = (proposal.agent_id, proposal.incarnation) if isinstance(proposal, JoinStream) else ("", 0)
    return Send(asker, Refused(agent_id=named[0], text=str(why), incarnation=named[1]))


def wanted(
    voters: Sequence[str],
    gone: Collection[str],
    candidates: Sequence[str],
    place_of: Callable[[str], str],
    most: int = VOTERS_MAX,
) -> tuple[str, ...]:
    """Who should be a voter. ``voters``: the present ones, the leader first; ``gone``: those of them that are
    long dead, or want to go; ``candidates``: live others, the nearest first."""
    chosen = [address for address in voters if address not in gone]
    chosen += apart(chosen, candidates, place_of, most - len(chosen))
    size = (min(len(chosen), most) + 1) // 2 * 2 - 1
    if size < 1 or (gone and size < min(3, len(voters))):
        return tuple(voters)
    return tuple(chosen[:size])


def apart(
    chosen: Sequence[str], candidates: Sequence[str], place_of: Callable[[str], str], count: int
) -> list[str]:
    """Up to so many of the candidates: from places (region, rack) with the fewest chosen ones, and in the
    given order."""
    places = Counter(place_of(address) for address in chosen)
    rest, found = list(candidates), list[str]()
    while rest and len(found) < count:
        best = min(rest, key=lambda address: places[place_of(address)] if place_of(address) else 0)
        rest.remove(best)
        found.append(best)
        places[place_of(best)] += 1
    return found
