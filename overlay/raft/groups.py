"""All groups of one node: events in, effects out. Sends every message to its group, and beats for all of them
together; holds none of their logic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from overlay.effects import Rng
from overlay.errors import OverlayError
from overlay.ids import Peer, to_int
from overlay.raft.config import RaftConfig
from overlay.raft.context import Context, ahead, gathered
from overlay.raft.effects import Effect, Event, Received, Send, Write
from overlay.raft.group import Group
from overlay.raft.leading import Origin
from overlay.raft.reception import Reception
from overlay.raft.values import Standing, Stored


class Groups:
    """The Raft groups of a node, without clock, sockets, disk or random generator of its own.

    Every call takes ``now_ms`` (integer milliseconds of any monotonic clock) and returns effects, to be
    performed in order (see :mod:`overlay.raft.effects`). ``deadline()`` is the time at which a ``Tick`` is
    wanted. Groups are named by 16 bytes. ``stored`` is what the disk holds, as :class:`lab.raft.disk.Disk`
    explains it. A restart must have a higher ``me.incarnation``. ValueError for arguments that make no sense.
    """

    def __init__(
        self, me: Peer, config: RaftConfig, rng: Rng, stored: Mapping[bytes, Stored] | None = None
    ) -> None:
        self._context = Context(me, config, rng)
        self._reception = Reception(self._context, stored or {})
        self._groups = self._reception.groups

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Begin, once. Every stored group reports its state (``Installed``); later committed records come
        when they are known."""
        self._at(now_ms)
        for group in self._groups.values():
            group.start()
        self._context.after(("beat", ""), self._context.rng.randrange(self._context.config.beat_ms) + 1)
        return self._take()

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """A message has come, or the deadline has passed."""
        self._at(now_ms)
        if isinstance(event, Received):
            self._reception.receive(event.message)
        else:
            self._reception.tick()
        return self._take()

    def pending(self) -> list[Effect]:
        """What is left of a call that raised: what it wrote, and what it said before."""
        return self._take()

    def deadline(self) -> int | None:
        """When a Tick is wanted, in ms; None before start."""
        return self._context.timers.next()

    def leave(self, now_ms: int) -> list[Effect]:
        """Leave on purpose: hand over every group that we lead and leave all. Done when ``held()`` is empty;
        a group of which we are the only voter stays, for no other node has it."""
        self._at(now_ms)
        self._reception.leaving = True
        for group in list(self._groups.values()):
            group.leave()
            self._reception.settle(group)
        return self._take()

    def peer_down(self, address: str, now_ms: int) -> list[Effect]:
        """The overlay has found that a peer is gone (``PeerDown``): stop waiting for it."""
        self._at(now_ms)
        if self._reception.links.hush(address):
            self._reception.silent(address)
        return self._take()

    def end(self, key: bytes, now_ms: int) -> list[Effect]:
        """Forget a group whose purpose is over, as the caller knows for sure: every member does so by itself.
        Does nothing if we have no slot in it."""
        self._at(now_ms)
        group = self._groups.get(key)
        if group is not None:
            group.local.released = True
            self._reception.settle(group)
        return self._take()

    # -- groups ----------------------------------------------------------------------------------------------

    def create(self, key: bytes, state: bytes, invited: Iterable[str], now_ms: int) -> list[Effect]:
        """CREATE: bootstrap the group with this state, and ask others to join it.

        It is led at once, by us alone; it survives us when ``standing`` shows more voters. A group begins in
        no other way. OverlayError if we have a voter slot in it already.
        """
        self._at(now_ms)
        to_int(key)
        self._bounded(state, self._context.config.state_bytes_max)
        if key in self._groups:
            raise OverlayError(f"group {key.hex()} exists")
        group = self._reception.add(Group.found(self._context, self._reception.links, key, state))
        return self._invite(group, invited)

    def invite(self, key: bytes, addresses: Iterable[str], now_ms: int) -> list[Effect]:
        """Ask these to join, if we lead. The group shrinks to its size afterwards: silent and far members
        go."""
        self._at(now_ms)
        group = self._groups.get(key)
        return self._invite(group, addresses) if group is not None else []

    def enter(self, key: bytes, contacts: Iterable[str], now_ms: int) -> list[Effect]:
        """Join a group that exists: ask these nodes for it, until one knows it. If none does, nothing is
        bootstrapped."""
        self._at(now_ms)
        to_int(key)
        addresses = tuple(address for address in contacts if address != self._context.me.address)
        group = self._groups.get(key)
        if group is not None:
            group.enter(addresses)
            self._reception.settle(group)
        else:
            self._reception.seek(key, addresses)
        return self._take()

    def remove(self, key: bytes, address: str, now_ms: int) -> list[Effect]:
        """Remove a member, if we lead; one that is dead for good."""
        self._at(now_ms)
        group = self._groups.get(key)
        if group is not None and group.leadership is not None:
            member = group.local.membership.at(address)
            if member is not None:
                group.leadership.leave(member.slot)
            self._reception.settle(group)
        return self._take()

    def move(self, key: bytes, now_ms: int) -> list[Effect]:
        """If we lead a group, it has us at our present address from now on. For a node that was started
        elsewhere with its disk, once the caller is sure that no node is at the old address, with that slot.
        """
        self._at(now_ms)
        group = self._groups.get(key)
        if group is not None and group.leadership is not None:
            group.leadership.move()
            self._reception.settle(group)
        return self._take()

    def transfer(self, key: bytes, address: str, now_ms: int) -> list[Effect]:
        """Hand leadership over to the voter there ("": to the best), if we lead. Records are refused
        meanwhile."""
        self._at(now_ms)
        group = self._groups.get(key)
        if group is not None and group.leadership is not None:
            group.leadership.transfer(address)
            self._reception.settle(group)
        return self._take()

    # -- records ---------------------------------------------------------------------------------------------

    def propose(self, key: bytes, token: int, payload: bytes, now_ms: int, term: int = 0) -> list[Effect]:
        """Append a record, here or (forwarded) at the leader; Accepted or Rejected follows.

        ``token`` is the caller's, of 62 bits, used once in an incarnation. With ``term`` the record is
        refused unless it goes into the log in just that term: so a deposed leader writes nothing.
        """
        self._at(now_ms)
        self._bounded(payload, self._context.config.record_bytes_max)
        if not payload:
            raise ValueError("a record is not empty")
        group = self._groups.get(key)
        if group is None:
            self._reception.reject(key, token, "not leader", "")
        elif group.leadership is not None:
            reason = group.leadership.propose(Origin(None, token), payload, term)
            self._reception.settle(group)
            if reason is not None:
                self._reception.reject(key, token, reason, group.target)
        else:
            self._reception.forward(group, token, payload, term)
        return self._take()

    def read(self, key: bytes, token: int, now_ms: int) -> list[Effect]:
        """Ask what is committed, as the leader: Readable once a majority has confirmed that we lead; or
        Rejected."""
        self._at(now_ms)
        group = self._groups.get(key)
        if group is None or group.leadership is None:
            self._reception.reject(key, token, "not leader", group.target if group else "")
            return self._take()
        reason = group.leadership.read(token)
        if reason is not None:
            self._reception.reject(key, token, reason, group.target)
        self._reception.settle(group)
        return self._take()

    def compact(self, key: bytes, index: int, state: bytes, now_ms: int) -> list[Effect]:
        """The caller's state at ``index`` (committed here) replaces the records up to it. Does nothing if it
        is old."""
        self._at(now_ms)
        self._bounded(state, self._context.config.state_bytes_max)
        group = self._groups.get(key)
        if group is not None:
            group.compact(index, state)
        return self._take()

    @staticmethod
    def ahead(send: Send, writes: Sequence[Write]) -> bool:
        """Whether a message may leave before these writes are durable (protocol 5.12), for a caller that
        holds back what stands behind them."""
        return ahead(send, writes)

    def gathered(self, sends: Sequence[Send]) -> list[Send]:
        """Messages that were held back, for a caller that performs the effects of several calls at once: the
        parts for one peer share messages."""
        return gathered(sends, self._context.me, self._context.config)

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def dropped(self) -> int:
        """Messages dropped because they were malformed."""
        return self._reception.dropped

    @property
    def state_bytes_max(self) -> int:
        """No state of a group may be larger."""
        return self._context.config.state_bytes_max

    @property
    def me(self) -> Peer:
        return self._context.me

    def held(self) -> tuple[bytes, ...]:
        """The groups in which we have a voter slot."""
        return tuple(self._groups)

    @property
    def slots(self) -> int:
        """In how many groups we have a voter slot."""
        return len(self._groups)

    def holds(self, key: bytes) -> bool:
        """Whether we have a voter slot in a group."""
        return key in self._groups

    def leads(self, key: bytes) -> bool:
        """Whether we lead a group."""
        group = self._groups.get(key)
        return group is not None and group.leadership is not None

    def placed(self, key: bytes) -> str:
        """The address at which a group has us; empty if it has not."""
        group = self._groups.get(key)
        own = group.local.membership.in_slot(group.local.hard.slot) if group is not None else None
        return own.address if own is not None else ""

    def alone(self, key: bytes) -> bool:
        """Whether we are the only voter of a group."""
        group = self._groups.get(key)
        return group is not None and group.local.alone

    def standing(self, key: bytes) -> Standing | None:
        """Epoch, term, committed and leader of a group, as far as we know; None if we have no slot in it."""
        group = self._groups.get(key)
        return group.standing() if group is not None else None

    def alive(self, address: str) -> bool:
        """Whether a peer that shares a group with us, and leads it or is led by us, was heard lately."""
        return self._reception.links.alive(address)

    def peers(self) -> int:
        """How many peers we beat: those that lead groups of ours or are in groups that we lead."""
        return self._reception.links.tied()

    def group(self, key: bytes) -> Group:
        """The slot itself, for simulators and their judges. KeyError if there is none."""
        return self._groups[key]

    def check(self) -> None:
        """Raise OverlayBug, with the last events, if an invariant is broken."""
        self._reception.check()

    # -- the parts -------------------------------------------------------------------------------------------

    def _at(self, now_ms: int) -> None:
        self._context.now = max(self._context.now, now_ms)

    def _take(self) -> list[Effect]:
        return self._context.take()

    @staticmethod
    def _bounded(data: bytes, most: int) -> None:
        if len(data) > most:
            raise ValueError(f"{len(data)} bytes, over the limit of {most}")

    def _invite(self, group: Group, addresses: Iterable[str]) -> list[Effect]:
        if group.leadership is not None:
            for address in addresses:
                if address != self._context.me.address:
                    group.leadership.invite(address)
        self._reception.settle(group)
        return self._take()
