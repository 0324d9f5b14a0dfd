"""How an agent leaves its cluster (``elf leave``; protocol 10.2, protocol 10.3).

It seals all that is open, hands over what it has sealed and the copies that it has of the dead, has the log
say from when on it is gone, waits for those who are to have its parts of tables, hands over its slots in all
groups, and leaves the ring.

Who asks is told no, and nothing is changed, where a group would have no majority without this agent: another
member is dead, and nobody is there to take its place. What is kept there would stand still until the dead one
is back. Where that is so, or one more death would make it so, it looks for a while before it decides
(``SURE_MS``): who has just died is missed by then, and a group that is about to have another leader has it.
Where it goes all the same, a group most of whose members live releases the dead one first
(``overlay.raft.changes``).
Once it has sealed there is no way back: whoever begins to leave, asked by ``--force`` or since nothing was in
its way then, goes after ``GOING_MS`` (``agents.node.catalog``) without its groups' leave too, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agents.node.beginning import Context
from agents.node.catalog import Catalog, Step
from agents.node.groups import GroupDesk
from agents.node.hosting import Hosting
from agents.node.staffing import Staffing
from agents.node.working import Working
from elf.job.catalog.voters import LOG_GROUP
from elf.job.commands import SealOpen
from elf.job.effects import Send, Stop, Work
from elf.job.group.shards import Shards
from elf.wire.clients import Failed, Reply

HANDING_MS: Final = 15_000
"""So long it looks for somebody who takes the copies that it has of the dead, and again for those who are to
have its parts of tables."""
SURE_MS: Final = 4_000
"""Who has not died so long ago is noticed."""


class Leaving:
    """Of one agent."""

    def __init__(
        self,
        context: Context,
        desk: GroupDesk,
        staffing: Staffing,
        catalog: Catalog,
        hosting: Hosting,
        working: Working,
        shards: Shards,
    ) -> None:
        self._me = context.me
        self._streams = context.streams
        self._log = context.log
        self._overlay = context.overlay
        self._desk = desk
        self._staffing = staffing
        self._catalog = catalog
        self._hosting = hosting
        self._working = working
        self._shards = shards
        self._sender = working.sender
        self._replicas = working.replicas
        self._owed_ms: int | None = None
        """Since when nothing of our own is owed."""
        self._left_ms: int | None = None
        """Since when the log has us as gone."""
        self._untils: dict[str, int] = {}
        self._clients: list[tuple[str, int]] = []
        self._asked_ms: int | None = None
        """Somebody waits to hear whether we go."""
        self.under_way = False

    def asked(self, client: str, request: int, now_ms: int, *, force: bool) -> list[Step]:
        """By a client, who is told how it ends, or that this agent stays."""
        self._clients.append((client, request))
        if force or self.under_way:
            return self.begin()
        if self._asked_ms is None:
            self._asked_ms = now_ms
        return self._decide(now_ms)

    def _decide(self, now_ms: int) -> list[Step]:
        """Begin, tell them no, or wait until we know."""
        if self._asked_ms is None:
            return []
        if now_ms - self._asked_ms < SURE_MS and self._lacking(1):
            return []
        why = self._needed()
        if not why:
            return self.begin()
        told = [Send(to, Failed(request=n, text=why)) for to, n in self._clients]
        self._clients, self._asked_ms = [], None
        return [*told]

    def _lacking(self, spare: int = 0) -> dict[str, tuple[str, ...]]:
        """What would have no majority without us, and so many more that may be dead, by whom it lacks."""
        found: dict[str, tuple[str, ...]] = {}
        for key in sorted(self._desk.held(), key=LOG_GROUP.__ne__):
            kept = "the catalog log" if key == LOG_GROUP else self._hosting.kept(key)
            missed = self._missed(key, spare) if kept else None
            if missed is not None:
                found[kept] = missed
        return found

    def _needed(self) -> str:
        """Why this agent can't be done without; empty: it can be."""
        what = self._lacking()
        dead = dict.fromkeys(address for missed in what.values() for address in missed)
        if not dead:
            return ""
        name, they, things = self._me.name, _listed(self._names(dead)), _listed(what)
        does, are = ("does", "is") if len(dead) == 1 else ("do", "are")
        return (
            f"{name} stays: {they} {does} not answer, and without {name} as well too few would be left that "
            f"keep {things}; start {they} again and then leave, or leave all the same with --force: then the "
            f"others go on without {they} where they can, and what they cannot keep waits until {they} {are} "
            "back"
        )

    def _missed(self, key: bytes, spare: int) -> tuple[str, ...] | None:
        """The dead without whom a group can't let us go; None: it can, or it has and we have not heard so: as
        one that we do not lead, though it is led, or that we know with members who have left."""
        standing = self._desk.standing(key)
        if standing is not None and not standing.leads:
            departed = self._departed()
            left = any(voter.address in departed for voter in standing.membership.voters)
            if left or (not standing.leader and self._is_led(key)):
                return None
        missed = self._staffing.stranded(key, spare)
        if missed == ():  # we keep it alone: the last agent of a cluster goes as it likes
            return tuple(self._others()) or None
        return missed

    def _stalled(self) -> str:
        """What stands still without us, for people: jobs over streams that no other agent has."""
        log, me = self._log, self._me.agent_id
        left = [
            stream
            for stream in sorted(self._streams)
            if not any(m.agent_id != me and log.is_member(m.agent_id) for m in log.members(stream))
        ]
        jobs = [spec.name for spec in log.jobs() if {*left} & {*spec.plan.streams}]
        if not jobs or not self._others():
            return ""
        return f"; {_listed(jobs)} {'waits' if len(jobs) == 1 else 'wait'} until an agent has {_listed(left)}"

    def _is_led(self, key: bytes) -> bool:
        """Whether a live agent elsewhere leads a group, as the log's voters or the log say."""
        cluster = self._catalog.membership.cluster
        leader = cluster.voters.leader if cluster is not None else ""
        at = leader if key == LOG_GROUP else self._hosting.leader_of(key)
        return any(peer.address == at for peer in self._overlay.peers())

    def _others(self) -> dict[str, str]:
        """The other agents that have not left the cluster, by address; those without a stream are on the ring
        only."""
        log = self._log
        members = [member for stream in log.streams() for member in log.members(stream)]
        others = [m for m in members if log.is_member(m.agent_id) and m.address != self._me.address]
        known = {member.address for member in members}
        streamless = (peer.address for peer in self._overlay.peers() if peer.address not in known)
        return {member.address: member.name for member in others} | {one: one for one in streamless}

    def _departed(self) -> set[str]:
        """Where agents were that have left the cluster; not those that never were in a stream."""
        log = self._log
        members = [member for stream in log.streams() for member in log.members(stream)]
        return {member.address for member in members} - log.addresses()

    def _names(self, addresses: Iterable[str]) -> list[str]:
        others = self._others()
        return [others.get(address, address) for address in addresses]

    def begin(self) -> list[Step]:
        self.under_way, self._asked_ms = True, None
        self._replicas.hand_on()
        found: list[Step] = [*self._working.rows_back()]
        return [*found, *(Work(stream, SealOpen()) for stream in sorted(self._streams))]

    def sealed(self, stream: str, until_us: int) -> None:
        """All of a stream is: this agent has nothing of it from that time on."""
        if self.under_way:
            self._untils[stream] = until_us

    def tick(self, now_ms: int) -> list[Step]:
        """Go when nothing is owed and the log knows."""
        if not self.under_way:
            return self._decide(now_ms)
        owes = any(self._sender.owes(flow.uid) for flow in self._sender.flows())
        if self._untils.keys() != self._streams or owes:
            return []
        self._owed_ms = now_ms if self._owed_ms is None else self._owed_ms
        catalog, membership = self._catalog, self._catalog.membership
        late = now_ms - self._owed_ms >= HANDING_MS or not self._others()
        if self._replicas.to_hand_on() and not late:  # also who is no member yet may have copies
            return []
        if not membership.left():
            return list(membership.leave(self._untils, now_ms, catalog.neighbours()))
        self._left_ms = now_ms if self._left_ms is None else self._left_ms
        if self._shards.to_hand_on() and self._others() and now_ms - self._left_ms < HANDING_MS:
            return []
        handed_over = catalog.gone() or not self._others()  # who hears nobody need not be the last
        if not handed_over and not catalog.late(now_ms):
            return list(catalog.go(now_ms))
        text = f"{self._me.name} has left"
        if not handed_over:
            text += "; no majority of the catalog log's voters has let it go: they will replace it in time"
        text += self._stalled()
        if lost := self._replicas.to_hand_on():
            text += f"; nobody has taken {lost} snapshots that it had of other agents"
        if parts := self._shards.to_hand_on():
            text += (
                f"; {parts} of the parts of tables that it had are not at all agents that are to have them"
            )
        told = [Send(to, Reply(request=n, text=text)) for to, n in self._clients]
        self._clients = []
        return [*told, *self._overlay.leave(now_ms), Stop("left the cluster", 0)]


def _listed(names: Iterable[str], most: int = 3) -> str:
    """For people; not all of many."""
    known = list(names)
    if len(known) > most:
        known = [*known[: most - 1], f"{len(known) - most + 1} more"]
    return " and ".join(part for part in (", ".join(known[:-1]), known[-1]) if part)
