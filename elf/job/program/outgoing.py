"""What jobs in Python of one node send: it leaves when the state behind it is durable (protocol 14.1).

Slices are sent again until their receivers have them durably; the answers to those of others wait in the same
way. A slice stays with the agent that it was sent to, which may be away for a while. Where the catalog log
says that this agent has left the fleet, the parent gets it. One for the master goes to where that is by then.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

import overlay as ring
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.membership import Identity
from elf.job.commands import TapsKept
from elf.job.effects import Effect, Multicast, SaveMaster, SaveProgram, Send, Work
from elf.job.program import calls
from elf.job.program import messages as note
from elf.job.program.feedback import Feedback, Name
from elf.job.program.keeping import Leaves, Sender, Slice
from elf.job.program.port import ProgramEffect
from elf.job.program.running import Running, remember
from elf.job.program.seats import OWN, group_of, masters_name, seat_named, seat_of
from elf.job.program.spec import ProgramSpec
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
    feedback: Feedback
    counts: Counter[str]

    def refusal(self, running: Running, effect: calls.SendTo | calls.RemarkTo) -> str:
        """Why a job may not send this; empty: it may."""
        if effect.tree >= len(running.spec.trees):
            return "up no tree"
        to = effect.to
        return "to no agent" if to and not self.is_agent(running, to, effect.tree) else ""

    def is_agent(self, running: Running, address: str, tree: int) -> bool:
        """Whether a job may send there: nothing else hears what it has to say."""
        if address in running.wrote or self.log.there(address) or address == masters_name(seat_of(tree)):
            return True
        return self._is_peer(address)

    def _is_peer(self, address: str) -> bool:
        peers = self.overlay.peers()
        return address == self.me.address or any(peer.address == address for peer in peers)

    def receiver(self, running: Running, address: str, tree: int) -> str:
        """Who at an address is meant: the master of the tree, wherever it is, if it is there; an agent's, if
        the master itself sends. Without an address: who is above us. A master may be meant by its name."""
        seat = seat_of(tree)
        if address == masters_name(seat):
            return address
        address = address or self.overlay.parent(running.spec.topics[tree]) or ""
        if not address:
            return masters_name(seat)
        return (
            masters_name(seat)
            if running.seat != seat and self.is_master(running.spec, address, tree)
            else address
        )

    def is_master(self, spec: ProgramSpec, address: str, tree: int) -> bool:
        """Whether the master of a tree is at an address, as the log or the tree says."""
        if address == self.log.leader(spec.groups[tree]):
            return True
        topic = spec.topics[tree]
        if self.overlay.is_root(topic):
            return address == self.me.address
        return self.overlay.path(topic) == (address,)

    def roots(self, spec: ProgramSpec) -> tuple[str, ...]:
        """Where the masters of its trees are, as the log says; of a job with one tree nobody asks."""
        if len(spec.trees) == 1:
            return ()
        return tuple(self.log.leader(group) or "" for group in spec.groups)

    def to_master(self, spec: ProgramSpec, message: Message) -> Step:
        """Send it to the master, or to the node nearest to the app id while the log does not know where that
        is."""
        leader = self.log.leader(spec.uid)
        return Send(leader, message) if leader else ToApp(spec.app, message)

    def to_app(self, app: bytes, message: Message) -> Step:
        """The same, for any application."""
        spec = next((spec for spec in self.log.programs() if spec.app == app), None)
        return ToApp(app, message) if spec is None else self.to_master(spec, message)

    def drop(self, running: Running, why: str) -> None:
        """A message of the job's does not leave."""
        running.counts[f"messages dropped: {why}"] += 1
        self.counts["messages_dropped"] += 1

    # -- checkpoints -----------------------------------------------------------------------------------------

    def save(self, running: Running, now_ms: int) -> list[Step]:
        """Write what is new, unless something is being written."""
        taken = running.keeping.take_checkpoint()
        if taken is None:
            return []
        number, record = taken
        if not record:
            return self.saved(running, number, now_ms)
        if running.seat:
            return [SaveMaster(running.group, running.term, number, record)]
        return [SaveProgram(running.spec.uid, number, record)]

    def saved(self, running: Running, number: int, now_ms: int) -> list[Step]:
        """A checkpoint is durable: what rests on it leaves."""
        spec, release = running.spec, running.keeping.saved(number, now_ms)
        by_sender: dict[Sender, list[int]] = {}
        for sender, slice_ in release.kept:
            by_sender.setdefault(sender, []).append(slice_)
        found: list[Step] = [self._keeps(running, to, *numbers) for to, numbers in by_sender.items()]
        found += [step for effect in release.effects for step in self._leave(running, effect, now_ms)]
        of = {tap.name: tap.fragment.stream for tap in spec.taps}
        for stream in sorted(running.streams(self.streams)):
            if given := tuple(one for one in release.given if of.get(one[0]) == stream):
                found.append(Work(stream, TapsKept(spec.uid, given)))
        return [*found, *self.save(running, now_ms)]

    def _leave(self, running: Running, effect: Leaves, now_ms: int) -> list[Step]:
        spec = running.spec
        match effect:
            case Slice():
                return [*self._note(running, effect)]
            case calls.RouteOut():
                routed = note.Routed(
                    app=effect.app, source=spec.app, value=effect.value, origin=self.me.address
                )
                return [self.to_app(routed.app, routed)]
            case calls.MulticastOut() | calls.FeedOut():
                return self.down(running, effect, now_ms)
        return []

    def down(
        self, running: Running, effect: calls.MulticastOut | calls.RemarkOut | calls.FeedOut, now_ms: int
    ) -> list[Step]:
        """What a master multicasts leaves."""
        if not (running.seat and self.overlay.is_root(running.topic)):
            self.drop(running, "not the master any more")
            return []
        running.multicasts += 1
        name = Name(running.group, running.term, running.multicasts)
        if not isinstance(effect, calls.FeedOut):
            return [Multicast(running.topic, self.feedback.send(name, effect.value, now_ms))]
        if (told := self.feedback.feed(name, effect, now_ms)) is not None:
            return [Multicast(running.topic, told)]
        self.drop(running, "feedback that is none")
        return []

    # -- slices ----------------------------------------------------------------------------------------------

    def _note(self, running: Running, slice_: Slice) -> list[Send]:
        uid = running.spec.uid
        seat, to = self._seated(uid, slice_.to)
        word = note.Note(
            uid=uid,
            value=slice_.value,
            agent=self.me.agent_id,
            number=slice_.number,
            settled=running.keeping.settled(slice_.to),
            of=running.seat,
            to=seat,
            tree=slice_.tree,
        )
        return [Send(to, word)] if to else []

    def remark(self, running: Running, effect: calls.RemarkTo) -> list[Send]:
        """What leaves at once; nowhere, where nobody knows who is the master."""
        spec, to = running.spec, self.receiver(running, effect.to, effect.tree)
        seat, address = self._seated(spec.uid, to)
        if not address:
            self.drop(running, "to a master that is not there")
            return []
        return [Send(address, note.Remark(uid=spec.uid, value=effect.value, to=seat, tree=effect.tree))]

    def _seated(self, uid: str, to: str) -> tuple[int, str]:
        """The seat, and the address, of a receiver: an address or a master's name. The address is empty while
        the log does not know where the master is."""
        seat = seat_named(to)
        return seat, ((self.log.leader(group_of(uid, seat)) or "") if seat else to)

    def _keeps(self, running: Running, sender: Sender, *numbers: int) -> Send:
        """Of more than go at once the rest is told when they come again."""
        (address, seat), told = sender, numbers[: note.NOTES_MAX]
        return Send(address, note.NotesKept(uid=running.spec.uid, numbers=told, of=seat, to=running.seat))

    def kept(self, running: Running, sender: str, word: note.NotesKept) -> None:
        """Slices of ours are kept. What a master has, the agent says that leads its job group."""
        if word.to == OWN:
            running.keeping.is_kept(sender, word.numbers)
        elif sender == self.log.leader(group_of(word.uid, word.to)):
            running.keeping.is_kept(masters_name(word.to), word.numbers)

    def noted(self, running: Running, sender: str, slice_: note.Note, place: calls.Place) -> list[Step]:
        """A slice has come, perhaps again."""
        if running.state == "failed" or not self._speaks(sender, slice_):
            return []
        remember(running.wrote, sender)
        agent = masters_name(slice_.of) if slice_.of else slice_.agent
        kept = running.keeping.received(agent, slice_.number, slice_.settled)
        if kept is not None:
            return [self._keeps(running, (sender, slice_.of), slice_.number)] if kept else []
        found = running.call(calls.Sent(sender, slice_.value), place)
        running.keeping.takes(agent, (sender, slice_.of), slice_.number)
        return [*found]

    def _speaks(self, sender: str, slice_: note.Note) -> bool:
        """Whether a slice may be of the agent that it names: nobody settles the slices of another one."""
        if slice_.of:
            leader = self.log.leader(group_of(slice_.uid, slice_.of))
            return sender == leader and slice_.settled <= slice_.number
        ids = [member.agent_id for member in self.log.there(sender)]
        theirs = slice_.agent in ids or not (ids or self.log.is_member(slice_.agent))
        return theirs and slice_.settled <= slice_.number

    def resend(self, running: Running, now_ms: int) -> list[Step]:
        """Slices that others are not known to have. A master has no parent, and takes those for an agent that
        has left itself; one for another tree has the master there."""
        found: list[Step] = []
        for slice_ in running.keeping.resends(now_ms):
            if not self.log.has_left(slice_.to) or self._is_peer(slice_.to):
                found.extend(self._note(running, slice_))
                continue
            topic = running.spec.topics[slice_.tree]
            if running.seat or self.overlay.is_root(topic):
                running.keeping.moves(slice_, masters_name(seat_of(slice_.tree)))
            elif heir := self.overlay.parent(topic):
                running.keeping.moves(slice_, self.receiver(running, heir, slice_.tree))
        return [*found, *self.save(running, now_ms)]
