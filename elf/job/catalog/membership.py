"""Following the catalog log: finding its voters, joining our streams, taking the log's entries.

    unknown --Welcome--> following      a node with contacts asks its neighbours who votes on the log
    unknown --bootstrap--> following    a node that bootstraps it (``elf.job.catalog.voters``) follows itself

Where many agents start at once most of those asked do not know the voters either. Each time other agents are
asked, and an agent that does not know yet answers when it does.

A follower asks one voter after the other, every ``follow_ms``, so a dead voter costs one turn and nothing has
to watch them. The trees of its streams make it prompt: a tree reports what it missed and cannot repair, and
the follower asks at once. The asking makes it certain, for all agents and all streams. Proposals
(``JoinStream`` and the like) are repeated until their entry is seen, so nothing here needs an answer. A
follower that begins has all of the log before it. A tail is bounded; a tail that brings something new and is
not all is followed by the next request at once.

Whoever answers without being asked is not believed: neither who votes, nor that this is another cluster, nor
what the log says, unless it is a voter or the word came down a tree.

Every fifth time the follower also asks a neighbour who votes on the log. So an agent that was away while all
voters changed learns the new ones, and two clusters that have come into one ring notice it. The smaller one
stops.

**In a fleet with keys** a member may lie, and only voters are believed (protocol 12.8). Their word is direct,
over a connection of the key of the agent at that address (``agents.doors``), or came down a tree with the
signature of that key. So the voters that a follower knows name their successors: they change one at a time,
and a former voter goes on to answer who asks it. What others say of voters is a *rumour*: the follower asks
those that it knows. Only if none of them says anything for ``LOST_MS`` is a later rumour believed, as a
newcomer, who knows nobody, believes whom it asks. That there is another cluster is believed of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final
from zlib import crc32

import msgspec

from elf.fields import Labels
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import FOREVER_US
from elf.job.effects import Disbelieved, Effect, SaveFact, SaveLog, Send, Stop
from elf.job.messages.log import (
    AgentLoad,
    ChangeRoster,
    Follow,
    Hello,
    JobAdded,
    JoinStream,
    LeaveStream,
    LogEntry,
    LogTail,
    LogVoters,
    Proposal,
    Refused,
    VersionAdded,
    Wanted,
    Welcome,
)
from elf.security.authored import Authorship, stale
from elf.security.certificates import Signed

CLUSTER_FACT: Final = "cluster"
"""Durable: the cluster's uid, and the voters of its log as far as known (msgpack of both)."""

JOINING_MS: Final = 250
"""From the first request to the second while we are not a member of all our streams; it doubles up to
``follow_ms``, since answers take long where many join at once."""
HELLO_EVERY: Final = 5
HELLO_AT_ONCE: Final = 3
ASKED_US_MAX: Final = 1_024
"""Agents that wait for us to learn who votes on the log; any more ask again."""
ASKED_THEM_MAX: Final = 1_024
"""Agents whose answers are believed."""
AHEAD_MAX: Final = 16
"""Tails that wait for entries before theirs."""
TAIL_ENTRIES: Final = 500
"""Entries in one tail of the log, at most."""
TAIL_PLANS: Final = 32
"""Of these, the most with a job's query, of which who hears of it makes a plan."""
TAIL_BYTES_MAX: Final = 8 << 20
"""The most bytes of jobs' tables (``elf.ql.tables``) in one tail of the log."""
LOST_MS: Final = 8_000
"""After a rumour, with keys: voters that have been silent for so long may be gone, all of them."""
EARLY_MS: Final = 450
"""So much sooner something periodic is done, where the node is awake for something else: nearly always for
the ring's heartbeat, which comes as often."""
HURRY_MS: Final = 250
"""A follower that has heard what it cannot take asks a voter so soon."""
KEYS_AT_ONCE: Final = 64
"""Certificates and revocations that are proposed at a time."""


class Identity(msgspec.Struct, frozen=True):
    """Which agent this is: ``agent_id`` for ever, ``incarnation`` since its last start."""

    agent_id: str
    name: str
    incarnation: int
    address: str
    labels: Labels | None = None
    """Those of the agent; None: nobody is told."""
    place: str = ""
    """Where it stands, as region/rack, if its trees go by regions (``overlay.regions``)."""
    lends: bool = True
    """Whether it may have copies of tables with a ring (``elf.job.ring``)."""


class StreamSince(msgspec.Struct, frozen=True):
    """A stream that this agent has, and the event time from which it has it."""

    name: str
    since_us: int


class Cluster(msgspec.Struct, frozen=True):
    """The cluster that an agent belongs to, as stored in its data folder. Voters of epoch 0 are a guess."""

    uid: str
    voters: LogVoters


def read_cluster(fact: bytes | None) -> Cluster | None:
    """The cluster in the fact; None: the agent never belonged to any."""
    return msgspec.msgpack.decode(fact, type=Cluster) if fact else None


class Membership:
    """This node's view of the catalog log. Methods return effects; ``take_fresh`` returns new entries."""

    def __init__(
        self,
        me: Identity,
        streams: Sequence[StreamSince],
        log: CatalogLog,
        *,
        cluster: Cluster | None,
        follow_ms: int = 2_000,
        signed: Sequence[Signed] = (),
    ) -> None:
        """``signed``: certificates and revocations that the log is to have."""
        self.me = me
        self.log = log
        self.cluster = cluster
        self._fresh: list[LogEntry] = []
        self._streams = tuple(streams)
        self._follow_ms = follow_ms
        self._next_ms = self._early_ms = 0
        self._pause_ms = JOINING_MS
        self._leaving: dict[str, int] = {}
        self._dead: dict[str, Authorship | None] = {}
        """Agents that are to be removed, by id, and who has signed that."""
        self._wanted: dict[Wanted, Callable[[], bool]] = {}
        """What clients of this agent wait for."""
        self._ahead: dict[int, tuple[LogEntry, ...]] = {}
        self._asked = crc32(me.agent_id.encode())
        self._asked_us: dict[str, None] = {}
        self.load: AgentLoad | None = None
        """What this agent does, which it says to voters."""
        self._signed = dict.fromkeys(signed)
        self._signed_at = -1
        self._asked_them: dict[str, None] = {}
        """Whom we have asked, the last ones at the end."""
        self._rumour_ms: int | None = None
        """Since when others say that there are newer voters, and none that we know has said anything."""
        self._strangers: dict[str, None] = {}
        """Who has said that there is another cluster, with keys."""
        self._neighbours = 0

    def take_fresh(self) -> list[LogEntry]:
        """The entries that are new since the last time."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def deadline(self) -> int:
        return self._next_ms

    def is_due(self, now_ms: int) -> bool:
        """Whether to ask now; a little before the deadline, where the node is awake for something else."""
        return now_ms >= self._next_ms - self._early_ms

    def joined(self) -> bool:
        """True when the log has us as a member, in this incarnation, of all our streams."""
        return all(
            (m := self.log.member_of(s.name, self.me.agent_id)) is not None
            and m.incarnation == self.me.incarnation
            for s in self._streams
        )

    def left(self) -> bool:
        """True when the log has us as gone from all our streams."""
        members = [self.log.member_of(s.name, self.me.agent_id) for s in self._streams]
        return all(m is None or m.until_us != FOREVER_US for m in members)

    def number(self, stream: str) -> int | None:
        """Our member number in a stream."""
        member = self.log.member_of(stream, self.me.agent_id)
        return None if member is None else member.number

    @property
    def voters(self) -> tuple[str, ...]:
        """Addresses of the log's voters, as far as we know."""
        return self.cluster.voters.addresses if self.cluster is not None else ()

    @property
    def voter(self) -> str | None:
        """The voter to ask next."""
        return self.voters[self._asked % len(self.voters)] if self.voters else None

    # -- asking ----------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, neighbours: Sequence[str]) -> list[Effect]:
        """Send the requests that are due: for the voters, for new entries, to be let in."""
        if not self.is_due(now_ms):
            return []
        return self.ask(now_ms, neighbours)

    def ask(self, now_ms: int, neighbours: Sequence[str]) -> list[Effect]:
        self._asked += 1
        self._neighbours, self._early_ms = len(neighbours), 0
        if self.cluster is not None and self.joined() and not self._leaving:
            self._next_ms, self._early_ms = now_ms + self._follow_ms, min(EARLY_MS, self._follow_ms // 4)
        else:
            self._next_ms = now_ms + self._pause_ms
            self._pause_ms = min(2 * self._pause_ms, self._follow_ms)
        voter = self.voter
        if self.cluster is None or voter is None:
            return [self._to(address, Hello()) for address in self._in_turn(neighbours)]
        found: list[Effect] = [self._to(voter, proposal) for proposal in self._proposals(now_ms)]
        if voter != self.me.address:
            found.append(self._to(voter, self._follow(self.cluster.voters)))
        if neighbours and self._asked % HELLO_EVERY == 0:
            found.append(self._to(neighbours[self._asked // HELLO_EVERY % len(neighbours)], Hello()))
        return found

    def _to(self, address: str, question: Hello | Follow | Proposal) -> Send:
        """Ask somebody, whose answer is believed from now on."""
        self._asked_them.pop(address, None)
        self._asked_them[address] = None
        if len(self._asked_them) > ASKED_THEM_MAX:
            del self._asked_them[next(iter(self._asked_them))]
        return Send(address, question)

    def believes(self, sender: str) -> bool:
        """Whether a word from there is an answer, a voter's, our own, or came down a tree; with keys only a
        voter's, or, where we know of none yet, an answer."""
        if sender == self.me.address or sender in self.voters:
            return True
        if self.log.roster is None or (self.cluster is None and sender):
            return sender == "" or sender in self._asked_them
        return False

    def hurry(self, now_ms: int) -> None:
        """Ask a voter soon."""
        self._next_ms, self._early_ms = min(self._next_ms, now_ms + HURRY_MS), 0

    def _in_turn(self, neighbours: Sequence[str]) -> list[str]:
        """The agents to ask who votes on the log: others than the last time, and than other agents ask."""
        places = range(self._asked * HELLO_AT_ONCE, (self._asked + 1) * HELLO_AT_ONCE)
        return list(dict.fromkeys(neighbours[place % len(neighbours)] for place in places if neighbours))

    def _follow(self, voters: LogVoters) -> Follow:
        epoch, term = (voters.epoch, voters.term) if self._rumour_ms is None else (0, 0)
        return Follow(agent_id=self.me.agent_id, known=self.log.last, epoch=epoch, term=term, load=self.load)

    def _proposals(self, now_ms: int) -> list[Proposal]:
        found: list[Proposal] = []
        for stream in self._streams:
            member = self.log.member_of(stream.name, self.me.agent_id)
            if stream.name in self._leaving:
                until = self._leaving[stream.name]
                proposal = LeaveStream(stream=stream.name, agent_id=self.me.agent_id, until_us=until)
                found += [proposal] if member is not None and member.until_us > until else []
            elif member is None or member.incarnation != self.me.incarnation:
                found.append(self._join(stream))
        for agent_id in list(self._dead):
            known = ((name, self.log.member_of(name, agent_id)) for name in self.log.streams())
            there = [name for name, member in known if member is not None and member.until_us == FOREVER_US]
            author, until_us = self._dead[agent_id], now_ms * 1_000
            if not there or (author is not None and stale(author.authored, now_ms / 1_000)):
                del self._dead[agent_id]
                continue
            found += [
                LeaveStream(stream=name, agent_id=agent_id, until_us=until_us, author=author)
                for name in there
            ]
        self._wanted = {proposal: seen for proposal, seen in self._wanted.items() if not seen()}
        return [*found, *self._wanted, *self._unknown_keys()]

    def _unknown_keys(self) -> list[ChangeRoster]:
        """What was signed and the log could take. What it would refuse is looked at again when its roster has
        changed: a token may come after what it has signed."""
        roster = self.log.roster
        if roster is None or self._signed_at == len(roster.signed):
            return []
        self._signed = {one: None for one in self._signed if not roster.has(one)}
        found = list(islice((one for one in self._signed if not roster.refusal(one)), KEYS_AT_ONCE))
        if not found:
            self._signed_at = len(roster.signed)
        return [ChangeRoster(signed=one) for one in found]

    def sign(self, signed: Signed) -> None:
        """Propose, until the log says so, that a certificate or a revocation holds; not what the log would
        refuse."""
        if self.log.roster is not None and not self.log.roster.refusal(signed):
            self._signed[signed] = None
            self._signed_at = -1
            self._next_ms = 0

    def propose(self, proposal: Wanted, seen: Callable[[], bool]) -> None:
        """Until the log says so (``seen``), or ``propose_no_more``."""
        self._wanted[proposal] = seen
        self._next_ms = 0

    def propose_no_more(self, proposal: Wanted) -> None:
        self._wanted.pop(proposal, None)

    def take_off(self, agent_id: str, author: Authorship | None = None) -> None:
        """Propose, until the log says so, that an agent which is gone for good is no longer expected from now
        on."""
        self._dead[agent_id] = author
        self._next_ms = 0

    def leave(self, untils: dict[str, int], now_ms: int, neighbours: Sequence[str]) -> list[Effect]:
        """Propose, until the log says so, that we leave at these event times."""
        begins, self._leaving = not self._leaving, untils
        if not begins:
            return self.tick(now_ms, neighbours)
        self._pause_ms = JOINING_MS
        return self.ask(now_ms, neighbours)

    def _join(self, stream: StreamSince) -> JoinStream:
        me = self.me
        return JoinStream(
            stream=stream.name,
            agent_id=me.agent_id,
            name=me.name,
            incarnation=me.incarnation,
            address=me.address,
            since_us=stream.since_us,
            labels=me.labels,
            place=me.place,
            lends=me.lends,
        )

    # -- hearing ---------------------------------------------------------------------------------------------

    def hear(
        self, sender: str, message: Hello | Welcome | Follow | LogTail | Refused, now_ms: int
    ) -> list[Effect]:
        if sender in self.voters:
            self._rumour_ms = None
        match message:
            case Hello():
                return self._greeted(sender)
            case Welcome() if not self.believes(sender):
                return self._rumoured(sender, message, now_ms)
            case LogTail() | Refused() if not self.believes(sender):
                if sender in self._asked_them:
                    return []  # it may have been a voter when we asked
                return [Disbelieved(type(message).__name__, sender, "who says it is no voter of the log")]
            case Welcome():
                return self._welcomed(sender, message, now_ms)
            case Follow():
                return self._followed(sender, message)
            case LogTail():
                return self._take_tail(message)
            case Refused():
                ours = message.agent_id == self.me.agent_id
                ours = ours and message.incarnation in (0, self.me.incarnation)
                return [Stop(message.text, 1)] if ours else []

    def _greeted(self, sender: str) -> list[Effect]:
        """An agent asks who votes on the log."""
        if self.cluster is not None:
            return [Send(sender, self._welcome(self.cluster))]
        if len(self._asked_us) < ASKED_US_MAX:
            self._asked_us[sender] = None
        return []

    def _welcome(self, cluster: Cluster) -> Welcome:
        return Welcome(voters=cluster.voters, cluster_uid=cluster.uid, entries=self.log.last)

    def _welcomed(self, sender: str, welcome: Welcome, now_ms: int) -> list[Effect]:
        if self.cluster is None:
            self._pause_ms = JOINING_MS
            return [*self.kept_by(welcome.cluster_uid, welcome.voters), *self.ask(now_ms, ())]
        if welcome.cluster_uid == self.cluster.uid:
            return self.kept_by(welcome.cluster_uid, welcome.voters)
        if (welcome.entries, welcome.cluster_uid) < (self.log.last, self.cluster.uid):
            return []
        text = (
            f"{sender} belongs to another cluster of the same name, kept by "
            f"{', '.join(welcome.voters.addresses)}: rename one of the two, or remove this agent's data "
            "folder and name those as its bootstrap"
        )
        return [Stop(text, 1)]

    def _rumoured(self, sender: str, welcome: Welcome, now_ms: int) -> list[Effect]:
        """Somebody who is no voter says who votes, which is no proof where there are keys."""
        known, said = self.cluster, welcome.voters
        if self.log.roster is None or known is None or sender not in self._asked_them:
            return []
        if welcome.cluster_uid != known.uid:
            self._strangers[sender] = None
            enough = len(self._strangers) >= min(2, self._neighbours)
            return self._welcomed(sender, welcome, now_ms) if enough else []
        if (said.epoch, said.term) <= (known.voters.epoch, known.voters.term) or self.voters == (
            self.me.address,
        ):
            return []
        if self._rumour_ms is None:
            self._rumour_ms = now_ms
        elif now_ms - self._rumour_ms >= LOST_MS:
            self._rumour_ms = None
            return self.kept_by(welcome.cluster_uid, said)
        self.hurry(now_ms)
        return []

    def kept_by(self, uid: str, voters: LogVoters) -> list[Effect]:
        """An agent says who votes on the log; older information than ours is ignored."""
        known = self.cluster
        news = known is None or (voters.epoch, voters.term) > (known.voters.epoch, known.voters.term)
        if not news or not voters.addresses:
            return []
        self.cluster = Cluster(uid, voters)
        if known is not None and known.voters.addresses == voters.addresses and known.voters.epoch:
            return []
        if not self.joined():
            self._next_ms = 0  # there is somebody to ask now
        asked_us, self._asked_us = self._asked_us, {}
        welcomes = [Send(address, self._welcome(self.cluster)) for address in asked_us]
        return [SaveFact(CLUSTER_FACT, msgspec.msgpack.encode(self.cluster)), *welcomes]

    def _followed(self, sender: str, asked: Follow) -> list[Effect]:
        return self.tell(sender, asked.known, (asked.epoch, asked.term))

    def tell(self, asker: str, known: int, voters: tuple[int, int] = (0, 0)) -> list[Effect]:
        """Tell an agent what it does not know; it has so many entries, and knows the voters of that epoch and
        term."""
        if self.cluster is None:
            return []
        ours = self.cluster.voters
        tail = _bounded(self.log.after(known, TAIL_ENTRIES))
        if not tail and (ours.epoch, ours.term) <= voters:
            return []
        return [Send(asker, self.tail(self.cluster, known, tail))]

    def tail(self, cluster: Cluster, after: int, entries: tuple[LogEntry, ...]) -> LogTail:
        uid, voters, last = cluster.uid, cluster.voters, self.log.last
        return LogTail(cluster_uid=uid, voters=voters, after=after, entries=entries, last=last)

    def _take_tail(self, tail: LogTail) -> list[Effect]:
        if self.cluster is None or tail.cluster_uid != self.cluster.uid:
            return []
        found = self.kept_by(tail.cluster_uid, tail.voters)
        gap = tail.after > self.log.last
        if gap:  # kept, since the next voter may not have as much yet
            self._ahead = {**dict(list(self._ahead.items())[1 - AHEAD_MAX :]), tail.after: tail.entries}
        known = self.log.last
        found.extend(self.take(tail.after, tail.entries))
        # a tail that comes twice is followed once: no two requests at a time
        more = tail.last > self.log.last > known
        if (gap or more) and self.voter not in (None, self.me.address):
            found.append(self._to(str(self.voter), self._follow(self.cluster.voters)))
        return found

    def take(self, after: int, entries: Sequence[LogEntry]) -> list[Effect]:
        """Take entries of the log after ``after``: new ones are ours from now on, and so are tails that came
        too early and follow them."""
        new = self.log.extend(after, entries)
        while ready := [early for early in self._ahead if early <= self.log.last]:
            for early in ready:
                new += self.log.extend(early, self._ahead.pop(early))
        self._fresh.extend(new)
        return [SaveLog(new, self.log.take_forgotten())] if new else []


def _bounded(entries: tuple[LogEntry, ...]) -> tuple[LogEntry, ...]:
    """As many of the first entries as fit in a message with the tables that they carry, and as are planned
    in no time; at least one."""
    size = plans = 0
    for place, entry in enumerate(entries):
        if isinstance(entry, JobAdded | VersionAdded):
            size, plans = size + entry.spec.definition.table_bytes, plans + 1
        if place and (size > TAIL_BYTES_MAX or plans > TAIL_PLANS):
            return entries[:place]
    return entries
