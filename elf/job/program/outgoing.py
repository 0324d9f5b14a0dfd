"""What jobs in Python of one node send: it leaves when the state behind it is durable (protocol 14.1).

Slices are sent again until their receivers have them durably; the answers to those of others wait in the same
way. A slice stays with the agent that it was sent to, which may be away for a while. Where the catalog log
says that this agent has left the fleet, the parent gets it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

import overlay as ring
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Identity
from elf.job.commands import TapsKept
from elf.job.effects import Effect, Multicast, SaveProgram, Send, Work
from elf.job.program import calls
from elf.job.program import messages as note
from elf.job.program.keeping import Slice
from elf.job.program.port import ProgramEffect
from elf.job.program.running import Running, remember
from elf.wire.base import Message


class ToApp(msgspec.Struct, frozen=True):
    """Route a message to the node nearest to an app id."""

    app: bytes
    message: Message


Step = Effect | ring.Effect | ProgramEffect | ToApp


@dataclass(frozen=True)
class Outgoing:
    """See the module's docstring. ``counts``: what was lost, by kind."""

    me: Identity
    streams: frozenset[str]
    log: CatalogLog
    overlay: ring.Overlay
    counts: Counter[str]

    def is_agent(self, running: Running, address: str) -> bool:
        """Whether a job may send there: nothing else hears what it has to say."""
        if address in running.wrote or self.log.there(address):
            return True
        return self._is_peer(address)

    def _is_peer(self, address: str) -> bool:
        peers = self.overlay.peers()
        return address == self.me.address or any(peer.address == address for peer in peers)

    def drop(self, running: Running, why: str) -> None:
        """A message of the job's does not leave."""
        running.counts[f"messages dropped: {why}"] += 1
        self.counts["messages_dropped"] += 1

    # -- checkpoints -----------------------------------------------------------------------------------------

    def save(self, running: Running) -> list[Step]:
        """Write what is new, unless something is being written."""
        taken = running.keeping.take_checkpoint()
        return [] if taken is None else [SaveProgram(running.spec.uid, *taken)]

    def saved(self, running: Running, number: int, now_ms: int) -> list[Step]:
        """A checkpoint is durable: what rests on it leaves."""
        spec, release = running.spec, running.keeping.saved(number, now_ms)
        by_sender: dict[str, list[int]] = {}
        for address, slice_ in release.kept:
            by_sender.setdefault(address, []).append(slice_)
        found: list[Step] = [self._keeps(running, to, *numbers) for to, numbers in by_sender.items()]
        found += [step for effect in release.effects for step in self._leave(running, effect)]
        of = {tap.name: tap.fragment.stream for tap in spec.taps}
        for stream in sorted(running.streams(self.streams)):
            if given := tuple(one for one in release.given if of.get(one[0]) == stream):
                found.append(Work(stream, TapsKept(spec.uid, given)))
        return [*found, *self.save(running)]

    def _leave(self, running: Running, effect: calls.MulticastOut | calls.RouteOut | Slice) -> list[Step]:
        spec = running.spec
        match effect:
            case Slice():
                return [self._note(running, effect)]
            case calls.RouteOut():
                routed = note.Routed(
                    app=effect.app, source=spec.app, value=effect.value, origin=self.me.address
                )
                return [ToApp(routed.app, routed)]
            case calls.MulticastOut() if self.overlay.is_root(spec.app):
                return [Multicast(spec.app, note.Told(uid=spec.uid, value=effect.value))]
        self.drop(running, "not the master any more")
        return []

    # -- slices ----------------------------------------------------------------------------------------------

    def _note(self, running: Running, slice_: Slice) -> Send:
        word = note.Note(
            uid=running.spec.uid,
            value=slice_.value,
            agent=self.me.agent_id,
            number=slice_.number,
            settled=running.keeping.settled(slice_.to),
        )
        return Send(slice_.to, word)

    def _keeps(self, running: Running, sender: str, *numbers: int) -> Send:
        """Of more than go at once the rest is told when they come again."""
        return Send(sender, note.NotesKept(uid=running.spec.uid, numbers=numbers[: note.NOTES_MAX]))

    def noted(self, running: Running, sender: str, slice_: note.Note, place: calls.Place) -> list[Step]:
        """A slice has come, perhaps again."""
        if running.state == "failed" or not self._speaks(sender, slice_):
            return []
        remember(running.wrote, sender)
        kept = running.keeping.received(slice_.agent, slice_.number, slice_.settled)
        if kept is not None:
            return [self._keeps(running, sender, slice_.number)] if kept else []
        found = running.call(calls.Sent(sender, slice_.value), place)
        running.keeping.takes(slice_.agent, sender, slice_.number)
        return [*found]

    def _speaks(self, sender: str, slice_: note.Note) -> bool:
        """Whether a slice may be of the agent that it names: nobody settles the slices of another one."""
        ids = [member.agent_id for member in self.log.there(sender)]
        theirs = slice_.agent in ids or not (ids or self.log.is_member(slice_.agent))
        return theirs and slice_.settled <= slice_.number

    def resend(self, running: Running, now_ms: int) -> list[Step]:
        """Slices that others are not known to have. The root has no parent, and takes those of an agent that
        has left itself."""
        found: list[Step] = []
        for slice_ in running.keeping.resends(now_ms):
            if not self.log.has_left(slice_.to) or self._is_peer(slice_.to):
                found.append(self._note(running, slice_))
                continue
            app = running.spec.app
            root = self.overlay.is_root(app)
            if heir := self.me.address if root else self.overlay.parent(app):
                running.keeping.moves(slice_, heir)
        return [*found, *self.save(running)]
