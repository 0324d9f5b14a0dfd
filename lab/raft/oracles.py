"""What must be true of Raft groups, judged from outside by one who sees all: slow, obvious, merciless.

Raft's five (Figure 3 of the paper): election safety, leader append-only and log matching, leader
completeness, state-machine safety; and what a caller may rely on: what was accepted stays, in an order that
agrees with time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from overlay.errors import OverlayError
from overlay.raft.effects import (
    Accepted,
    Committed,
    CompactWanted,
    Effect,
    Elected,
    Installed,
    Leading,
    Readable,
    Rejected,
    Retired,
)
from overlay.raft.values import Entry

if TYPE_CHECKING:
    from lab.raft.world import World
    from overlay.raft.groups import Groups

Name = tuple[bytes, int]
"""A group: its key and its birth."""


class Broken(OverlayError):
    """A promise of Raft groups does not hold."""


@dataclass
class Operation:
    """A record that somebody wanted, or a read: when it was asked for, and what came of it.

    ``after``: the highest index of this group that anybody had been told to be accepted at that time.
    """

    group: bytes
    payload: bytes
    after: int
    index: int = 0
    refused: str = ""


class Judge:
    """Sees every effect when it is performed, and the node that asked for it. Keeps each node's state
    machine: a chain of digests of all that was committed."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[Name, int], int] = {}
        self.decided: dict[tuple[Name, int], tuple[Entry, int]] = {}
        """(group, index) → the entry, and the term in which it was first seen committed."""
        self.chains: dict[tuple[Name, int], bytes] = {}
        self.operations: dict[tuple[str, int], Operation] = {}
        self.accepted: dict[bytes, int] = {}
        self.states: dict[tuple[str, bytes], tuple[int, bytes]] = {}
        """(address, key) → index and digest of the state machine there."""
        self.led_at: dict[bytes, int] = {}
        """When a leader last committed its first record, by group."""

    def started(self, address: str) -> None:
        """The node begins anew; its memory is gone."""
        for local in [local for local in self.states if local[0] == address]:
            del self.states[local]

    def asked(self, address: str, token: int, group: bytes, payload: bytes) -> None:
        """Somebody wants a record (or, without a payload, a read) of the node there."""
        self.operations[address, token] = Operation(group, payload, self.accepted.get(group, 0))

    def seen(self, now: int, address: str, groups: Groups, effect: Effect) -> tuple[int, bytes] | None:
        """An effect is performed. For CompactWanted: the state that the log may be replaced by."""
        match effect:
            case Installed():
                self._installed(address, self._name(groups, effect.group), effect)
            case Committed():
                self._committed(address, groups, effect)
            case Leading():
                self.led_at[effect.group] = now
            case Elected():
                self._elected(address, groups, effect)
            case Accepted():
                self._accepted(address, effect)
            case Rejected():
                self._rejected(address, effect)
            case Readable():
                self._readable(address, effect)
            case Retired():
                self.states.pop((address, effect.group), None)
            case CompactWanted():
                return self.states.get((address, effect.group))
        return None

    # -- the promises ----------------------------------------------------------------------------------------

    def _elected(self, address: str, groups: Groups, effect: Elected) -> None:
        """Election safety: one leader a term. Leader completeness: it has all that was committed before."""
        if not groups.holds(effect.group):
            return
        name = self._name(groups, effect.group)
        local = groups.group(effect.group).local
        first = self.leaders.setdefault((name, effect.term), local.hard.slot)
        if first != local.hard.slot:
            raise Broken(
                f"two leaders of {name} in term {effect.term}: {first} and {local.hard.slot} ({address})"
            )
        for index in range(local.log.base.index + 1, 1 << 62):
            known = self.decided.get((name, index))
            if known is None:
                break
            entry, term = known
            if term < effect.term and local.log.term_at(index) != entry.term:
                raise Broken(f"{address} leads {name} in term {effect.term} without entry {index}")

    def _committed(self, address: str, groups: Groups, effect: Committed) -> None:
        """State-machine safety: the same record at the same index everywhere, in order, none left out."""
        if not groups.holds(effect.group):
            return
        name, entry = self._name(groups, effect.group), effect.entry
        term = groups.group(effect.group).local.term
        first, _ = self.decided.setdefault((name, entry.index), (entry, term))
        if first != entry:
            raise Broken(f"{address} committed {entry} in {name}, another {first}")
        index, chain = self.states.get((address, effect.group), (0, b""))
        if entry.index != index + 1:
            raise Broken(f"{address} committed {entry.index} of {name} after {index}")
        digest = blake2b(chain + repr(entry).encode(), digest_size=16).digest()
        self._state(address, name, entry.index, digest)

    def _installed(self, address: str, name: Name, effect: Installed) -> None:
        self._state(address, name, effect.index, effect.state)

    def _state(self, address: str, name: Name, index: int, digest: bytes) -> None:
        if self.chains.setdefault((name, index), digest) != digest:
            raise Broken(f"the state of {name} at {index} is another at {address}")
        self.states[address, name[0]] = (index, digest)

    def _accepted(self, address: str, effect: Accepted) -> None:
        operation = self.operations[address, effect.token]
        if effect.index <= operation.after:
            raise Broken(f"a record asked for after {operation.after} was accepted stands at {effect.index}")
        if operation.index or operation.refused:
            raise Broken(f"{operation} has been answered, and now {effect}")
        operation.index = effect.index
        self.accepted[effect.group] = max(self.accepted.get(effect.group, 0), effect.index)

    def _readable(self, address: str, effect: Readable) -> None:
        operation = self.operations[address, effect.token]
        if effect.index < operation.after:
            raise Broken(f"a read after {operation.after} was accepted saw {effect.index} only")
        if self.states.get((address, effect.group), (0, b""))[0] < effect.index:
            raise Broken(f"readable up to {effect.index}, which has not come out at {address}")
        operation.index = effect.index

    def _rejected(self, address: str, effect: Rejected) -> None:
        operation = self.operations[address, effect.token]
        if operation.index or operation.refused:
            raise Broken(f"{operation} has been answered, and now {effect}")
        operation.refused = effect.reason

    # -- judged now and then ---------------------------------------------------------------------------------

    def logs(self, world: World) -> None:
        """Log matching: an index and a term name one entry, and one entry before it."""
        seen: dict[tuple[Name, int, int], tuple[Entry, int]] = {}
        for address in world.running():
            groups = world.at(address)
            for key in groups.held():
                log, name = groups.group(key).local.log, self._name(groups, key)
                before = log.base.term
                for entry in log.entries:
                    first = seen.setdefault((name, entry.index, entry.term), (entry, before))
                    if first != (entry, before):
                        raise Broken(f"logs of {name} differ at {entry.index}, term {entry.term} ({address})")
                    before = entry.term

    def operations_hold(self) -> None:
        """What was accepted is what was asked for and was decided where it was said; what was surely refused
        is nowhere; no record is doubled."""
        places: dict[tuple[bytes, bytes], list[int]] = {}
        decided: dict[tuple[bytes, int], bytes] = {}
        for ((key, _), index), (entry, _) in self.decided.items():
            decided[key, index] = entry.payload
            if entry.payload:
                places.setdefault((key, entry.payload), []).append(index)
        for operation in self.operations.values():
            if not operation.payload:
                continue
            stands = places.get((operation.group, operation.payload), [])
            if len(stands) > 1:
                raise Broken(f"{operation} stands at {stands}")
            if operation.index and stands != [operation.index]:
                raise Broken(f"{operation} was accepted, and stands at {stands}")
            if operation.refused not in ("", "unsure") and stands:
                raise Broken(f"{operation} was refused, and stands at {stands}")

    def rest(self, world: World, key: bytes) -> None:
        """A world at rest: every voter that runs has come to the same end, which holds all that was
        accepted."""
        leader = world.leader(key)
        if leader is None:
            raise Broken(f"nobody leads {key.hex()}")
        standing = world.at(leader).standing(key)
        end = self.states[leader, key]
        if standing is None or end[0] < self.accepted.get(key, 0):
            raise Broken(f"{key.hex()} ends at {end[0]}, and {self.accepted.get(key, 0)} was accepted")
        for member in standing.membership.voters:
            node = world.nodes[member.address].groups
            if node is not None and self.states.get((member.address, key)) != end:
                raise Broken(f"{member.address} is not at {end[0]} in {key.hex()}")

    @staticmethod
    def _name(groups: Groups, key: bytes) -> Name:
        return key, groups.group(key).local.hard.birth
