"""Following the stream log: finding its founder, joining our streams, taking its entries, or, at the founder,
giving them out.

    unknown --Welcome--> following          a node with a bootstrap asks a neighbour who founded the log
    founder                                 a node started without a bootstrap, or that was the founder before

The founder also ends flows that no job has read for ``flow_grace_ms``.

A follower asks every ``follow_ms``; the founder's multicasts make it prompt: the tree repairs those that are
missed, and when it can't it says so and the follower asks at once. The asking makes it sure.
``JoinStream`` is repeated until its entry is seen, so nothing here needs an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elf.errors import UserError
from elf.job.effects import Effect, SaveFact, SaveLog, Send, Stop
from elf.job.messages import (
    AddJob,
    DropJobEntry,
    Follow,
    Hello,
    JoinStream,
    LeaveStream,
    LogEntry,
    LogTail,
    Refused,
    Welcome,
)
from elf.job.programmessages import AddProgram
from elf.job.streamlog import FOREVER_US, StreamLog

FOUNDER_FACT = "founder"
"""Durable: address of the founder and the cluster's uid, two lines."""


@dataclass(frozen=True)
class Identity:
    """Who this agent is: ``agent_id`` for ever, ``incarnation`` since its last start."""

    agent_id: str
    name: str
    incarnation: int
    address: str


@dataclass(frozen=True)
class StreamSince:
    """A stream that this agent has, and the event time from which it has it."""

    name: str
    since_us: int


class Membership:
    """This node's view of the stream log. ``take`` methods return effects; new entries are read from
    ``fresh``.
    """

    def __init__(
        self,
        me: Identity,
        streams: Sequence[StreamSince],
        log: StreamLog,
        *,
        founder: str | None,
        cluster_uid: str,
        follow_ms: int = 2_000,
        flow_grace_ms: int = 10_000,
    ) -> None:
        self.me = me
        self.log = log
        self.founder = founder
        self.cluster_uid = cluster_uid
        self.fresh: list[LogEntry] = []
        self._streams = tuple(streams)
        self._follow_ms = follow_ms
        self._flow_grace_ms = flow_grace_ms
        self._idle_since: dict[str, int] = {}
        self._next_ms = 0
        self._leaving: dict[str, int] = {}

    @property
    def is_founder(self) -> bool:
        return self.founder == self.me.address

    def deadline(self) -> int:
        return self._next_ms

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

    # -- asking ----------------------------------------------------------------------------------------------

    def tick(self, now_ms: int, neighbours: Sequence[str]) -> list[Effect]:
        """Ask what is to be asked: for the founder, for new entries, to be let in."""
        if now_ms < self._next_ms:
            return []
        ended = self._end_flows(now_ms) if self.is_founder else []
        return [*ended, *self.ask(now_ms, neighbours)]

    def _end_flows(self, now_ms: int) -> list[Effect]:
        """At the founder: a job that comes soon after the last reader finds the flow still running."""
        self._idle_since = {uid: self._idle_since.get(uid, now_ms) for uid in self.log.idle_flows()}
        found: list[Effect] = []
        for uid, since_ms in self._idle_since.items():
            if now_ms - since_ms >= self._flow_grace_ms:
                found.extend(self._appended(self.log.end_flow(uid)))
        return found

    def ask(self, now_ms: int, neighbours: Sequence[str]) -> list[Effect]:
        self._next_ms = now_ms + (self._follow_ms if self.founder and self.joined() else 250)
        if self.founder is None:
            return [Send(address, Hello()) for address in neighbours[:3]]
        wishes: list[Effect] = []
        for stream in self._streams:
            if stream.name in self._leaving:
                until = self._leaving[stream.name]
                wishes.append(
                    self._to_founder(
                        LeaveStream(stream=stream.name, agent_id=self.me.agent_id, until_us=until)
                    )
                )
                continue
            member = self.log.member_of(stream.name, self.me.agent_id)
            if member is None or member.incarnation != self.me.incarnation or member.until_us != FOREVER_US:
                wishes.append(self._to_founder(self._join(stream)))
        if not self.is_founder:
            wishes.append(Send(self.founder, Follow(agent_id=self.me.agent_id, known=self.log.last)))
        return wishes

    def leave(self, untils: dict[str, int], now_ms: int, neighbours: Sequence[str]) -> list[Effect]:
        """Tell the founder that we are gone from these event times on, until the log says so."""
        self._leaving = untils
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
        )

    def _to_founder(self, message: JoinStream | LeaveStream | AddJob | DropJobEntry) -> Send:
        return Send(self.founder or self.me.address, message)

    # -- hearing ---------------------------------------------------------------------------------------------

    def hear(
        self, sender: str, message: Hello | Welcome | Follow | LogTail | Refused, now_ms: int
    ) -> list[Effect]:
        match message:
            case Hello():
                return (
                    [Send(sender, Welcome(founder=self.founder, cluster_uid=self.cluster_uid))]
                    if self.founder
                    else []
                )
            case Welcome():
                return self._welcomed(message, now_ms)
            case Follow():
                tail = self.log.after(message.known)
                return [Send(sender, LogTail(after=message.known, entries=tail))] if tail else []
            case LogTail():
                return self._take_tail(message)
            case Refused():
                return [Stop(message.text, 1)]

    def _welcomed(self, welcome: Welcome, now_ms: int) -> list[Effect]:
        if self.founder is None:
            self.founder, self.cluster_uid = welcome.founder, welcome.cluster_uid
            fact = f"{self.founder}\n{self.cluster_uid}".encode()
            return [SaveFact(FOUNDER_FACT, fact), *self.ask(now_ms, ())]
        if welcome.cluster_uid != self.cluster_uid:
            return [
                Stop(
                    f"another cluster of the same name answers at {welcome.founder}: rename one of the two",
                    1,
                )
            ]
        return []

    def _take_tail(self, tail: LogTail) -> list[Effect]:
        new = self.log.extend(tail.after, tail.entries)
        self.fresh.extend(new)
        if new:
            return [SaveLog(new)]
        if tail.after > self.log.last and self.founder and not self.is_founder:
            return [Send(self.founder, Follow(agent_id=self.me.agent_id, known=self.log.last))]
        return []

    def serve(
        self, sender: str, wish: JoinStream | LeaveStream | AddJob | DropJobEntry | AddProgram
    ) -> list[Effect]:
        """At the founder: append what is asked for. Elsewhere the wish is passed on to the founder."""
        if not self.is_founder:
            return [Send(self.founder, wish)] if self.founder and sender != self.founder else []
        try:
            match wish:
                case JoinStream():
                    new = self.log.join(wish)
                case LeaveStream():
                    new = self.log.leave(wish.stream, wish.agent_id, wish.until_us)
                case AddJob():
                    new = self.log.add_job(wish.spec)
                case DropJobEntry():
                    new = self.log.drop_job(wish.uid)
                case AddProgram():
                    new = self.log.add_program(wish.spec)
        except UserError as refused:
            return [Send(sender, Refused(text=str(refused)))]
        return self._appended(new)

    def _appended(self, new: tuple[LogEntry, ...]) -> list[Effect]:
        self.fresh.extend(new)
        return [SaveLog(new)] if new else []
