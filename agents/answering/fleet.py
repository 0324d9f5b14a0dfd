"""Who is in the fleet, as one agent knows it, and what members say of a stream.

Who is *expected* in a stream (a member that has not left) the catalog log tells; who lives, the overlay. All
else is asked of members: what they have seen, where they hang in the stream's tree, where their archives are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from typing import Final

import msgspec

import overlay as ring
from agents.answering.asks import Ask, Procedure, ToAddress, ToKey, Until
from agents.answering.moments import moment_of
from elf.errors import UserError
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import FOREVER_US, Member
from elf.job.catalog.membership import Identity, Membership
from elf.job.messages.inquiries import (
    DescribeStream,
    InspectClocks,
    InspectLoads,
    LocateInTree,
    RollArchive,
    StreamSeen,
    TreePlace,
)
from elf.job.messages.log import AgentLoad, Wanted
from elf.job.spec import stream_topic
from elf.ql.plan import Fragment
from elf.schema import Schema, merge_schemas
from elf.security.authored import Authorship
from elf.wire.base import Answer
from elf.wire.clients import AWAY, AgentStats, ArchiveStats, FleetStats, InspectAgent, Reply, Stats

SAMPLE_MEMBERS: Final = 5
"""Members that are asked which columns a stream has."""
ROOTS_ASKED_MAX: Final = 16
"""Roots of flows that are asked how far clocks are apart."""

LOG_WAITS_MAX: Final = 5
"""Times that the log is waited for, two seconds each: it may have no leader just now."""
PATIENCE_MS: Final = 2_000
"""How long an answer is waited for: somebody is looking on."""
ASKED_MAX: Final = 128
"""Agents that are asked at once."""


class Fleet:
    """The fleet from where ``me`` is. What asks others is a procedure, or a part of one
    (``agents.answering.asks``), and raises ``UserError`` where nobody answers."""

    def __init__(
        self,
        me: Identity,
        log: CatalogLog,
        overlay: ring.Overlay,
        membership: Membership,
        *,
        is_open: bool = False,
    ) -> None:
        """``is_open``: it has no keys, and so nobody in it has any."""
        self._is_open = is_open
        self._me = me
        self._log = log
        self._overlay = overlay
        self._membership = membership

    # -- what is known here ----------------------------------------------------------------------------------

    def expected(self, stream: str) -> list[Member]:
        """The members of a stream that have not left."""
        return [member for member in self._log.members(stream) if member.until_us == FOREVER_US]

    def asked(self, fragment: Fragment) -> list[Member]:
        """Those of them that may have rows of a fragment (protocol 2.6)."""
        return [member for member in self._log.asked(fragment) if member.until_us == FOREVER_US]

    @property
    def peers(self) -> int:
        """How many agents this one looks after; in a small ring all others."""
        return len(self._overlay.peers())

    def live(self) -> set[str]:
        """The addresses at which somebody is, this one among them."""
        return {self._me.address, *(peer.address for peer in self._overlay.peers())}

    def silent(self, addresses: Iterable[str]) -> set[str]:
        """Those of the addresses at which nobody is, for certain. Of a ring that is larger than the leaf set
        we watch a part, and others have to be asked."""
        return set(addresses) - self.live() if self._overlay.sees_all else set()

    def lives(self, member: Member, there: Container[str]) -> bool:
        """Whether it does where somebody is ``there``, at these addresses: at its own, and it is nobody that
        was started there since, without its data folder."""
        return member.address in there and self._log.agent_at(member.address) == member.agent_id

    def present(self, addresses: Iterable[str]) -> Generator[list[Ask], list[Answer], set[str]]:
        """The addresses at which somebody is: whom we do not watch is asked."""
        live, wanted = self.live(), set(addresses)
        unwatched = sorted(wanted - live - self.silent(wanted))
        found = yield from self._inspected(dict.fromkeys(unwatched, ("", ())))
        return live | {one.address for one in found if one.stats is not None}

    def loads(self) -> Generator[list[Ask], list[Answer], dict[str, AgentLoad]]:
        """What every agent does, by address, as a voter of the catalog log has heard it; nothing where that
        one is silent."""
        voter = self._membership.voter
        if voter is None:
            return {}
        (answer,) = yield [ToAddress(voter, InspectLoads(id=0, origin=""), PATIENCE_MS)]
        return {} if answer.error else msgspec.msgpack.decode(answer.body, type=dict[str, AgentLoad])

    def sample(self, stream: str) -> list[Member]:
        """Some members of a stream to be asked: those that we know to live, if any."""
        members, live = self.expected(stream), self.live()
        known = [member for member in members if member.address in live]
        return (known or members)[:SAMPLE_MEMBERS]

    def named(self, address: str) -> str:
        """An address with its agent's name, for people."""
        name = self.names().get(address)
        return f"{name} ({address})" if name else address

    def names(self) -> dict[str, str]:
        """By address, of all that have a stream."""
        return {m.address: m.name for s in self._log.streams() for m in self._log.members(s)}

    def agents(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Address → name and streams of all agents that have not left; of one that has no stream, what is
        known of it is its address."""
        found: dict[str, tuple[str, tuple[str, ...]]] = dict.fromkeys(sorted(self.live()), ("", ()))
        found[self._me.address] = (self._me.name, ())
        for stream in self._log.streams():
            for member in self.expected(stream):
                _, streams = found.get(member.address, ("", ()))
                found[member.address] = (member.name, (*streams, stream))
        return found

    def streams(self) -> list[dict[str, object]]:
        """The streams, and how many members are expected in each."""
        return [{"stream": s, "members": len(self.expected(s))} for s in self._log.streams()]

    def members(self, there: Container[str] | None = None) -> list[dict[str, object]]:
        """Every member of every stream: ``live``, ``away`` or ``left``; and whether it keeps the catalog log,
        or leads those that do. ``there``: who was asked and answered; without it one that we do not watch is
        ``unwatched``. Where trees go by regions each row says where its agent stands; an open fleet says
        that it is open."""
        opened: dict[str, object] = {"security": "open"} if self._is_open else {}
        known = [m for s in self._log.streams() for m in self._log.members(s)]
        placed = any(member.place for member in known)
        return [
            {
                "stream": s,
                "number": m.number,
                "agent": m.name,
                "address": m.address,
                "state": self._state_of(m, there),
                "log": self._keeps(m),
                **({"place": m.place} if placed else {}),
                **opened,
            }
            for s in self._log.streams()
            for m in self._log.members(s)
        ]

    def _state_of(self, member: Member, there: Container[str] | None) -> str:
        if member.until_us != FOREVER_US:
            return "left"
        if self.lives(member, self.live() if there is None else there):
            return "live"
        return "away" if there is not None or self._overlay.sees_all else "unwatched"

    def _notes(self, there: Container[str]) -> list[str]:
        """What is wrong with each member of ``members``; empty: nothing."""
        found = []
        for stream in self._log.streams():
            for member in self._log.members(stream):
                twice = self._log.namesakes(stream, member.agent_id)
                away = twice and not self.lives(member, there)
                how = f"elf leave --dead {member.name}" if away else "take off the one that is gone"
                found.append(f"{len(twice) + 1} have this name: {how}" if twice else "")
        return found

    def _keeps(self, member: Member) -> str:
        cluster = self._membership.cluster
        there = self._log.agent_at(member.address)
        if cluster is None or member.until_us != FOREVER_US or member.agent_id != there:
            return ""
        if member.address == cluster.voters.leader:
            return "leads"
        return "keeps" if member.address in cluster.voters.addresses else ""

    def log_kept(self) -> dict[str, object]:
        """How far the catalog log has come here, who leads its voters, and who these are."""
        cluster = self._membership.cluster
        leader = cluster.voters.leader if cluster is not None else ""
        return {"entries": self._log.last, "leader": leader, "keepers": self._membership.voters}

    # -- what members say ------------------------------------------------------------------------------------

    def seen(self, stream: str) -> Generator[list[Ask], list[Answer], list[StreamSeen]]:
        """What some members of a stream have seen of it, of those that answer: somebody has to."""
        sample = self.sample(stream)
        answers = yield [
            ToAddress(member.address, DescribeStream(id=0, origin="", stream=stream)) for member in sample
        ]
        seen = _seen(answers)
        if not seen:
            raise UserError(
                f"none of the {len(sample)} members of stream {stream} that were asked answers; try again"
            )
        return seen

    def schema(self, stream: str) -> Generator[list[Ask], list[Answer], Schema]:
        """The columns of a stream."""
        return (yield from self.view(stream)).schema

    def view(self, stream: str, *, finite: bool = False) -> Generator[list[Ask], list[Answer], StreamSeen]:
        """A stream as some of its members have seen it. Unless it is ``finite`` they have seen something of
        it, or were told its columns."""
        seen = yield from self.seen(stream)
        schema = merge_schemas([one.schema for one in seen])
        if not finite and not schema.columns and not any(one.rows for one in seen):
            raise UserError(
                f"no agent that was asked has read a line of stream {stream} yet, which would tell its "
                "columns: try again later, or declare them "
                f"(columns: of stream {stream} in the agents' settings)"
            )
        able = tuple(name for name in seen[0].lookups if all(name in one.lookups for one in seen))
        late = max((one.lateness_us for one in seen if one.lateness_us is not None), default=None)
        return msgspec.structs.replace(seen[0], schema=schema, lookups=able, lateness_us=late)

    def shipped(self, stream: str) -> Generator[list[Ask], list[Answer], dict[str, object]]:
        """Where a stream's lines are, after its members have closed and shipped their archives."""
        members = self.expected(stream)
        answers = yield [ToAddress(m.address, RollArchive(id=0, origin="", stream=stream)) for m in members]
        seen = _seen(answers)
        if not seen:
            raise UserError(
                f"no member of stream {stream} has shipped its archive: "
                + (answers[0].error if answers else "none is left")
            )
        told = [(m.name, answer) for m, answer in zip(members, answers, strict=True)]
        off = [name for name, answer in told if any(not one.archive for one in _seen([answer]))]
        if len(off) == len(seen):
            raise UserError(f"stream {stream} is not archived on {', '.join(off)} (archive: off)")
        return {
            "stream": stream,
            "format": seen[0].format,
            "timestamp": seen[0].timestamp,
            "archives": sorted({one.archive for one in seen if one.archive}),
            "silent": [name for name, answer in told if answer.error],
            "off": off,
        }

    def _skews(self) -> Generator[list[Ask], list[Answer], dict[str, int]]:
        """How far each agent's clock is ahead of the median (ms), as the roots of flows see it; an agent that
        several of them hear is told by the one that hears most."""
        roots = list(dict.fromkeys(flow.leader for flow in self._log.flows()))[:ROOTS_ASKED_MAX]
        if not roots:
            return {}
        answers = yield [ToAddress(root, InspectClocks(id=0, origin="")) for root in roots]
        heard = [msgspec.msgpack.decode(a.body, type=dict[str, int]) for a in answers if not a.error]
        return {address: skew for one in sorted(heard, key=len) for address, skew in one.items()}

    def told_members(self) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """``members``, each with how far its clock is ahead, where that is known, and what is wrong with it,
        if anything is with one of them."""
        there = yield from self.present(self._log.addresses())
        skews = yield from self._skews()
        rows = [
            {**row, "skew": f"{skews[at]:+d} ms" if (at := str(row["address"])) in skews else ""}
            for row in self.members(there)
        ]
        if any(notes := self._notes(there)):
            rows = [{**row, "note": note} for row, note in zip(rows, notes, strict=True)]
        return rows

    def tree(self, request: int, stream: str) -> Procedure:
        """Where every member of a stream hangs in the stream's tree; its root may be no member."""
        if stream not in self._log.streams():
            known = ", ".join(self._log.streams()) or "none"
            raise UserError(f"there is no stream {stream}; streams: {known}")
        members, where = self.expected(stream), LocateInTree(id=0, origin="", stream=stream)
        asks: list[Ask] = [ToKey(stream_topic(stream), where)]
        top, *answers = yield [*asks, *(ToAddress(m.address, where) for m in members)]
        if top.error:
            raise UserError(f"the root of the tree of stream {stream} does not answer; try again")
        places = list(zip(members, map(_place_of, answers), strict=True))
        tree = _stream_tree(stream, _place_of(top).address, places)
        return Reply(request=request, body=json.dumps(tree).encode())

    def stats(self, request: int, jobs: int) -> Procedure:
        """How all agents are (``elf top``): each is asked, and one that does not answer is named. The reply's
        body is ``FleetStats``."""
        found = yield from self._inspected(self.agents())
        return Reply(request=request, body=msgspec.json.encode(FleetStats(jobs, tuple(found))))

    def _inspected(
        self, agents: Mapping[str, tuple[str, tuple[str, ...]]]
    ) -> Generator[list[Ask], list[Answer], list[AgentStats]]:
        """What these say of themselves."""
        found: list[AgentStats] = []
        todo = list(agents.items())
        for begin in range(0, len(todo), ASKED_MAX):
            asked = todo[begin : begin + ASKED_MAX]
            answers = yield [ToAddress(at, InspectAgent(id=0, origin=""), PATIENCE_MS) for at, _ in asked]
            for (address, (name, streams)), answer in zip(asked, answers, strict=True):
                stats = None if answer.error else msgspec.msgpack.decode(answer.body, type=Stats)
                found.append(AgentStats(name, address, streams, stats))
        return found

    def each(self) -> Generator[list[Ask], list[Answer], dict[str, Stats]]:
        """What those who live and answer say of themselves, by what people call them."""
        agents = self.agents()
        silent = self.silent(agents)
        found = yield from self._inspected({at: one for at, one in agents.items() if at not in silent})
        return {one.agent: one.stats for one in found if one.stats is not None}

    def archives(self) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """What the agents have archived, a row for each stream of each of them. Of those that are away it is
        said that they do not answer, without asking where we know all that live."""
        agents = self.agents()
        silent = self.silent(agents)
        told = yield from self._inspected({at: one for at, one in agents.items() if at not in silent})
        told += [AgentStats(agents[at][0], at, agents[at][1], None) for at in sorted(silent)]
        rows = []
        for one in told:
            away = tuple(ArchiveStats(stream, problem=AWAY) for stream in one.streams)
            rows += [archive_row(one.agent, each) for each in (one.stats.archives if one.stats else away)]
        return sorted(rows, key=lambda row: (str(row["stream"]), str(row["agent"])))

    def have_logged(
        self, proposal: Wanted, seen: Callable[[], bool]
    ) -> Generator[list[Ask], list[Answer], None]:
        """Propose it until the log says so, or for about ten seconds."""
        self._membership.propose(proposal, seen)
        try:
            for _ in range(LOG_WAITS_MAX):
                yield [Until(seen)]
                if seen():
                    return
        finally:
            self._membership.propose_no_more(proposal)

    def refuse_code(self, what: str = "a job in Python") -> Generator[list[Ask], list[Answer], None]:
        """It runs on all agents, and so on none where one of those that live runs no users' code: raises
        ``UserError`` then."""
        found = yield from self.each()
        if refusals := [one.runs_no_code for one in found.values() if one.runs_no_code]:
            more = f" (and {len(refusals) - 1} agents more)" if len(refusals) > 1 else ""
            raise UserError(f"{refusals[0]}{more}; {what} needs all agents")

    def take_off(self, request: int, wanted: str, author: Authorship | None) -> Procedure:
        """An agent that is gone for good is expected no more; by its name, or where it was. ``author``: who
        has signed that, where there are keys."""
        known = [m for s in self._log.streams() for m in self.expected(s) if wanted in (m.name, m.address)]
        if not known:
            raise UserError(f"no agent {wanted} is expected; elf members names those that are")
        there = yield from self.present(m.address for m in known)
        dead = {m.agent_id: m for m in known if not self.lives(m, there)}
        if not dead:
            raise UserError(
                f"{wanted} lives, at {known[0].address}: elf leave --connect {known[0].address} has it leave"
            )
        for agent_id in dead:
            self._membership.take_off(agent_id, author)
        yield [Until(lambda: not any(self._log.is_member(agent_id) for agent_id in dead))]
        if any(self._log.is_member(agent_id) for agent_id in dead):
            raise UserError(
                f"{wanted} is still expected: the agents that keep the log do not answer; try again"
            )
        (one, *_) = dead.values()
        return Reply(request=request, text=f"{one.name} ({one.address}) is expected no more")


def _seen(answers: Sequence[Answer]) -> list[StreamSeen]:
    """What those that answered have seen of a stream."""
    return [msgspec.msgpack.decode(a.body, type=StreamSeen) for a in answers if not a.error]


def _place_of(answer: Answer) -> TreePlace:
    """What an agent answered to ``LocateInTree``; one that is silent has no place."""
    if answer.error:
        return TreePlace("", "")
    return msgspec.msgpack.decode(answer.body, type=TreePlace)


def _stream_tree(name: str, root: str, members: Sequence[tuple[Member, TreePlace]]) -> dict[str, object]:
    """The tree of a stream, in the form of a job's with one flow that nobody reads."""
    edges = [
        {"name": member.name, "address": member.address, "parent": place.parent, "sealed_us": None}
        for member, place in members
    ]
    flow = {"flow": "", "stream": name, "root": root, "readers": [], "edges": edges}
    return {"job": f"stream:{name}", "master": "", "flows": [flow]}


def archive_row(agent: str, archive: ArchiveStats) -> dict[str, object]:
    """What an agent has archived of a stream, for people."""
    return {
        "stream": archive.stream,
        "agent": agent,
        "from": "" if archive.from_us is None else moment_of(archive.from_us),
        "files": archive.files,
        "rows": archive.rows,
        "bytes": archive.bytes,
        "gone": archive.gone_rows,
        "gone to": "" if archive.gone_to_us is None else moment_of(archive.gone_to_us),
        "waiting": archive.waiting,
        "sorted": archive.hold,
        "path": archive.path,
        "problem": archive.problem,
    }
