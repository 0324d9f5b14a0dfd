"""This agent's part in the catalog log: it follows it like everybody; if it is one of the voters it takes
proposals and keeps the log; if it leads them it tells what is new and sees to it that there are enough.

What is new of a stream goes down that stream's tree, in which all its members are from their start, and the
job groups of jobs over it: the leader routes it to the topic, whose root multicasts it. There is no tree for
the whole log: those whom an entry concerns hear it at once, and everybody has it within two seconds by
following.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import overlay as ring
from agents.codec import pack, unpack
from agents.node.beginning import Context
from agents.node.groups import GroupDesk, GroupStep
from agents.node.staffing import Staffing
from elf.errors import PeerError, UserError
from elf.job.catalog.admission import entry_for, is_behind
from elf.job.catalog.membership import Membership
from elf.job.catalog.permission import forbidden
from elf.job.catalog.voters import (
    LOG_GROUP,
    Proposed,
    ReplicatedLog,
    bootstrap,
    encode,
    proposed_of,
    refusal,
    with_keys,
)
from elf.job.effects import Disbelieved, Effect, Send, Skipped
from elf.job.messages.inquiries import LocateInTree, TreePlace
from elf.job.messages.log import (
    ChangeRoster,
    EndFlow,
    EndVersion,
    Follow,
    Hello,
    LogEntry,
    LogTail,
    LogVoters,
    MemberJoined,
    Proposal,
    Refused,
    SignedTail,
    Spread,
    Welcome,
)
from elf.job.spec import stream_topic
from elf.security.certificates import Signed
from elf.security.enrolling import stale
from elf.security.tails import is_signed, signable
from elf.wire.base import Answer
from overlay import raft

PROPOSED_MS: Final = 1_500
"""A proposal that is repeated within this time of its record is not proposed again."""
PROPOSED_MAX: Final = 4_096
FLOW_GRACE_MS: Final = 10_000
"""A job that comes so soon after the last reader of a flow finds it still running."""
TOLD_LATE_MAX: Final = 64
"""Entries that a tree is told together with what is new: who lacks more of them asks a voter."""
JOINS_MS: Final = 500
"""A stream is told at most so often that it has new members and nothing else: where many join at once each of
them would hear of each other."""
SEEK_MS: Final = 10_000
"""Between two looks for members that should be ring neighbours of ours and are not."""
GOING_MS: Final = 15_000
"""How long an agent that leaves tries to hand over its slot."""


@dataclass(frozen=True)
class _Untold:
    """What a stream is to be told, and when: the log from this entry on."""

    first: int
    due_ms: int


Step = GroupStep | ring.Effect
LogWord = Hello | Welcome | Follow | LogTail | SignedTail | Refused


class Catalog:
    """See the module's docstring. ``membership`` follows the log, of which this agent knows a prefix, like
    everybody; ``kept``: the log as its group has decided it, at a voter. ``signed``: the certificates with
    which this agent bootstraps the log, if it does; ``sign``: with its own key, where there are keys."""

    def __init__(
        self,
        context: Context,
        membership: Membership,
        kept: ReplicatedLog,
        desk: GroupDesk,
        staffing: Staffing,
        *,
        voters_max: int,
        new_cluster_uid: str,
        signed: Sequence[Signed] = (),
        sign: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._sign = sign
        self.log = context.log
        self.membership = membership
        self.kept = kept
        self.desk = desk
        self.staffing = staffing
        self._voters_max = voters_max
        self._me = context.me
        self._overlay = context.overlay
        self._groups = desk.groups
        self._bootstraps = False
        self._new_cluster_uid = new_cluster_uid
        self._signed = signed
        self._topics = {stream_topic(stream) for stream in context.streams}
        self._proposed: dict[bytes, int] = {}
        self._unread: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._told_ms: dict[str, int] = {}
        self._untold: dict[str, _Untold] = {}
        self._known_to: dict[str, int] = {}
        self._led_here = False
        self._seek_ms = 0
        self._going_since: int | None = None

    # -- beginning and end -----------------------------------------------------------------------------------

    def start(self, contacts: Sequence[str], now_ms: int) -> list[Step]:
        """Begin with what the disk holds."""
        self._bootstraps = not contacts and self.membership.cluster is None
        return self._heard(self.desk.start(now_ms), now_ms)

    def on_ring(self, now_ms: int) -> list[Step]:
        """The ring has us: found the log if that is ours to do, take part in our streams' trees, ask
        around."""
        found: list[Step] = []
        if self._bootstraps and not self._groups.holds(LOG_GROUP):
            entries, trust = self.log.after(0, self.log.last), self.log.trust
            if trust is not None:
                entries = with_keys(entries, trust, self._signed)
            state = bootstrap(self._new_cluster_uid, entries)
            found.extend(self._heard(self.desk.create(LOG_GROUP, state, now_ms), now_ms))
        self._bootstraps = False
        for topic in sorted(self._topics):
            found.extend(self._overlay.subscribe(topic, now_ms))
        return [*found, *self.ask(now_ms)]

    def take_part(self, stream: str, now_ms: int) -> list[Step]:
        """Hear at once what is new of a stream, without being its member: as the job group of a job over
        it."""
        self._topics.add(stream_topic(stream))
        return list(self._overlay.subscribe(stream_topic(stream), now_ms))

    def gone(self) -> bool:
        """Whether we have no slot in any group."""
        return not self._groups.held() and not self.desk.busy

    def go(self, now_ms: int) -> list[Step]:
        """Hand over our slot; call it until ``gone`` or ``late``."""
        if self._going_since is None:
            self._going_since = now_ms
            self.staffing.going = True
            self.staffing.hurry()
        return self._staff(now_ms)

    def late(self, now_ms: int) -> bool:
        """Whether handing over has taken too long: no majority is there."""
        return self._going_since is not None and now_ms - self._going_since >= GOING_MS

    # -- who keeps it ----------------------------------------------------------------------------------------

    @property
    def standing(self) -> raft.Standing | None:
        """The group's, if we have a voter slot in it."""
        return self._groups.standing(LOG_GROUP)

    @property
    def keeps(self) -> bool:
        """Whether we are a voter."""
        standing = self.standing
        voters = standing.membership.voters if standing is not None else ()
        return any(voter.address == self._me.address for voter in voters)

    @property
    def alone(self) -> bool:
        """Whether nobody else keeps it, wherever we were when we began to."""
        return self._groups.alone(LOG_GROUP)

    @property
    def leads(self) -> bool:
        standing = self.standing
        return standing is not None and standing.leads

    def deadline(self) -> int | None:
        waits = [self.desk.deadline(), *(untold.due_ms for untold in self._untold.values())]
        if self._overlay.ready:
            waits += [self.membership.deadline(), self.staffing.due(LOG_GROUP) if self._led_here else None]
        return min((at for at in waits if at is not None), default=None)

    def tick(self, now_ms: int) -> list[Step]:
        found = self._heard(self.desk.tick(now_ms), now_ms)
        if self._overlay.ready:
            if self.membership.is_due(now_ms):
                found.extend(self.ask(now_ms))
            found.extend(self._staff(now_ms))
        return [*found, *self._tell_due(now_ms)]

    def _staff(self, now_ms: int) -> list[Step]:
        """As the leader: see to it that enough agents keep the log, and that flows end."""
        if not self.staffing.is_due(LOG_GROUP, now_ms):
            return []
        found = self._heard(self.staffing.look(LOG_GROUP, self._voters_max, now_ms), now_ms)
        return [*found, *self._end_flows(now_ms)] if self.leads else found

    def _end_flows(self, now_ms: int) -> list[Step]:
        """As the leader: end the flows that no job has read for a while."""
        self._unread = {uid: self._unread.get(uid, now_ms) for uid in self.kept.log.idle_flows()}
        found: list[Step] = []
        for uid, since_ms in self._unread.items():
            if now_ms - since_ms >= FLOW_GRACE_MS:
                found.extend(self.serve(self._me.address, EndFlow(uid=uid), now_ms))
        return found

    # -- messages --------------------------------------------------------------------------------------------

    def received(self, message: raft.Message, now_ms: int) -> list[Step]:
        return self._heard(self.desk.received(message, now_ms), now_ms)

    def persisted(self, now_ms: int) -> list[Step]:
        return self._heard(self.desk.persisted(now_ms), now_ms)

    def peer_up(self, now_ms: int) -> None:
        """An agent has come that may be wanted in groups."""
        self.staffing.peer_up(now_ms)

    def peer_down(self, address: str, now_ms: int) -> list[Step]:
        return self._heard(self.desk.peer_down(address, now_ms), now_ms)

    def hear(self, sender: str, message: LogWord, now_ms: int) -> list[Step]:
        if isinstance(message, Follow) and self.keeps:
            if len(self._known_to) >= PROPOSED_MAX:
                self._known_to.clear()
            self._known_to[sender] = max(message.known, self.log.last)
        if isinstance(message, SignedTail):
            return self._relayed(sender, message, now_ms)
        return list(self.membership.hear(sender, message, now_ms))

    def _relayed(self, sender: str, word: SignedTail, now_ms: int) -> list[Step]:
        """A tail that came down a tree, with the signature of a voter."""
        trust = self.log.trust
        if trust is None:
            return []
        keys = self.log.keys_at(word.voter, now_ms)
        if not is_signed(trust.cluster, word.tail, keys, word.signature):
            why = f"its signature is not that of an agent at {word.voter}"
        elif word.voter not in self.membership.voters:
            self.membership.hurry(now_ms)  # we may not have heard yet that it is one
            return []
        else:
            tail = unpack(word.tail)
            if isinstance(tail, LogTail):
                return list(self.membership.hear(word.voter, tail, now_ms))
            why = "it is no tail of the log"
        self.membership.hurry(now_ms)
        return [Disbelieved("SignedTail", sender, why)] if self.membership.joined() else []

    def missed(self, topic: bytes, now_ms: int) -> list[Step] | None:
        """A tree cannot repair what we missed; None if the topic is no stream's."""
        return self.ask(now_ms) if topic in self._topics else None

    def ask(self, now_ms: int) -> list[Step]:
        found: list[Step] = list(self.membership.ask(now_ms, self.neighbours()))
        if now_ms >= self._seek_ms:
            self._seek_ms = now_ms + SEEK_MS
            found += self._overlay.seek(self.log.addresses(), now_ms)
        return found

    def neighbours(self) -> list[str]:
        return [peer.address for peer in self._overlay.peers()]

    def serve(self, asker: str, proposal: Proposal, now_ms: int) -> list[Step]:
        """As a voter: let the group decide a proposal, unless it is hopeless or fulfilled: then who asks
        hears how long the log is. A voter that follows may hear of a job's next version before it hears that
        the job's entry is committed; that does not make the proposal fulfilled. Whoever is no voter drops it;
        it will be repeated at another one."""
        cluster = self.membership.cluster
        if not self.keeps or cluster is None or self.kept.unusable:
            return []
        if why_not := forbidden(self.kept.log, asker, self._me.address, proposal, now_ms):
            if isinstance(proposal, EndVersion):
                return []  # its job may have moved, which the log does not know yet
            return [Disbelieved(type(proposal).__name__, asker, why_not)]
        try:
            if entry_for(self.kept.log, proposal) is None and not is_behind(self.kept.log, proposal):
                told = self.membership.tail(cluster, self.kept.log.last, ())
                return [] if asker == self._me.address else [Send(asker, told)]
        except UserError as refused:
            return [refusal(asker, proposal, refused)]
        trust = self.log.trust
        if isinstance(proposal, ChangeRoster) and trust and stale(proposal.signed, trust.authority, now_ms):
            return []
        record = encode(Proposed(proposal, asker, self._me.address, self._me.incarnation))
        if isinstance(why := proposed_of(record), str):
            return [Skipped("a proposal", why)]
        if self._proposed.get(record, 0) > now_ms:
            return []
        if len(self._proposed) >= PROPOSED_MAX:
            self._proposed = {known: until for known, until in self._proposed.items() if until > now_ms}
        self._proposed[record] = now_ms + PROPOSED_MS
        return self._heard(self.desk.propose(LOG_GROUP, record, now_ms), now_ms)

    def spread(self, new: Sequence[LogEntry], now_ms: int) -> list[Step]:
        """As the leader: tell the streams that they have grown; of new members not at once when they were
        told just now."""
        if not self.leads:
            self._untold.clear()
            return []
        for entry in new:
            for stream in self.log.streams_of(entry):
                told_ms = self._told_ms.get(stream, -JOINS_MS)
                due_ms = told_ms + JOINS_MS if isinstance(entry, MemberJoined) else now_ms
                known = self._untold.get(stream, _Untold(entry.seq, due_ms))
                self._untold[stream] = _Untold(known.first, min(known.due_ms, due_ms))
        return self._tell_due(now_ms)

    def _tell_due(self, now_ms: int) -> list[Step]:
        """With what is new comes what a stream was not told meanwhile, since it concerned nobody there: a
        follower takes no entry before those below it."""
        cluster, last = self.membership.cluster, self.log.last
        found: list[Step] = []
        for stream, untold in sorted(self._untold.items()):
            if cluster is None or untold.due_ms > now_ms:
                continue
            del self._untold[stream]
            told = self._told.get(stream, 0)
            after = told if untold.first - 1 - told <= TOLD_LATE_MAX else untold.first - 1
            self._told[stream], self._told_ms[stream] = last, now_ms
            topic, new = stream_topic(stream), self.log.after(after, last - after)
            body = pack(self._signed_tail(self.membership.tail(cluster, after, new)))
            found.extend(self._overlay.route(topic, pack(Spread(topic=topic, body=body)), now_ms))
        return found

    def _signed_tail(self, tail: LogTail) -> LogTail | SignedTail:
        """As a tree is to carry it."""
        if self._sign is None or self.log.trust is None:
            return tail
        data = pack(tail)
        signature = self._sign(signable(self.log.trust.cluster, data))
        return SignedTail(voter=self._me.address, tail=data, signature=signature)

    def spread_here(self, word: Spread, now_ms: int) -> list[Step]:
        """As the root of a stream's tree: down it goes. A root that is not one any more lets followers
        ask."""
        if not self._overlay.is_root(word.topic):
            return []
        try:
            if not isinstance(unpack(word.body), LogTail | SignedTail):
                raise PeerError("it is no tail of the log")
        except PeerError as error:
            return [Disbelieved("Spread", "", str(error))]
        return list(self._overlay.multicast(word.topic, word.body, now_ms))

    def place(self, request: LocateInTree) -> Send:
        """Our place in a stream's tree."""
        place = TreePlace(self._me.address, self._overlay.parent(stream_topic(request.stream)) or "")
        return Send(request.origin, Answer(id=request.id, body=encode(place)))

    def follow(self) -> list[Step]:
        """What the group's word leads to: what was decided is ours, and so is who keeps it."""
        found: list[Step] = []
        outputs = self.desk.take_outputs(log=True)
        for _, record in outputs.rejected:
            self._proposed.pop(record, None)
        if outputs.changed:
            self._proposed.clear()  # what the leader before was handed may have died with it
            self._led_here = self.leads
            found.extend(self._kept_by())
        if self.kept.log.last > self.log.last:
            known = self.log.last
            found.extend(self.membership.take(known, self.kept.log.after(known, self.kept.log.last)))
        if granted := self.kept.take_granted():
            found.extend(self._granted(granted))
        return found

    def _granted(self, askers: Sequence[str]) -> list[Effect]:
        """Who waits for its proposal hears at once that it was granted: trees may be told later, and who
        joins is in none yet."""
        others = [asker for asker in dict.fromkeys(askers) if asker != self._me.address]
        known = {asker: self._known_to.pop(asker, self.log.last - 1) for asker in others}
        return [step for asker in others for step in self.membership.tell(asker, known[asker])]

    def _heard(self, steps: Sequence[GroupStep], now_ms: int) -> list[Step]:
        return [*steps, *self.follow()]

    def check(self) -> None:
        """Raise when an invariant of our groups is broken."""
        self._groups.check()

    def _kept_by(self) -> list[Effect]:
        standing = self.standing
        if standing is None or not standing.leader or not self.kept.cluster_uid:
            return []
        addresses = tuple(voter.address for voter in standing.membership.voters)
        voters = LogVoters(standing.epoch, standing.term, standing.leader, addresses)
        return self.membership.kept_by(self.kept.cluster_uid, voters)
