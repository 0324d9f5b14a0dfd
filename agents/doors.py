"""Who may say what to an agent, by the key of the connection that it comes over.

Rules: what a person or a token sends is read as a client's message and as nothing else, and comes from its
connection whatever it says; its creator is the name of the key. What an agent sends comes from an address
that is its own: where the catalog log has the agent of that name, or, while the log has none there, the first
one to use it. No agent says for another that it is a member, or leads, or wants a job to have another
version (as its leader may by itself, protocol 7.17). Connections of this machine's key, and plain ones, may
say anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from agents import codec
from agents.codec import Message
from elf.addresses import CLIENT_PREFIX
from elf.job.catalog.log import CatalogLog
from elf.job.messages.groups import ReconfigureJob
from elf.job.messages.log import JoinStream, MoveJobGroup
from elf.security.principals import Principal
from elf.security.roles import OPEN_CALLS
from elf.wire import base
from elf.wire.base import FAMILY
from elf.wire.clients import Call, Cancel, Execute, KeepAlive
from elf.wire.frames import Codec, Decoded, Frame, FrameRefused

CLAIMS_MAX: Final = 4_096
"""Addresses of agents that the catalog log does not have there yet."""
CLAIMS_OF_ONE_MAX: Final = 4
CLAIM_SECS: Final = 30.0
"""An address that its first user has not used for so long is free again."""

FROM_CLIENTS: Final = (Execute, Call, KeepAlive, Cancel)
_CLIENTS: Final[Codec[base.Message]] = Codec({FAMILY: FROM_CLIENTS})


class Doors:
    """Of one agent."""

    def __init__(self, log: CatalogLog, cluster: str, bytes_max: int) -> None:
        self._log = log
        self._cluster = cluster
        self._bytes_max = bytes_max
        self._seen = -1
        self._granted: dict[str, frozenset[str]] = {}
        """Who is at an address, as the catalog log has it up to ``_seen``."""
        self._claims: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """Who first used an address, and when last."""

    def opened(
        self, origin: str, frames: Sequence[Frame], who: Principal | None, now: float
    ) -> Decoded[Message]:
        """A message, and where an answer goes to. ``origin``: as the transport has it; ``now`` in seconds.
        Raises ``FrameRefused``."""
        if who is None or who.kind == "local":
            decoded = codec.decode(frames, cluster=self._cluster, max_bytes=self._bytes_max)
            return decoded if _listens(decoded.sender) else Decoded(origin, decoded.message)
        if who.kind == "agent":
            decoded = codec.decode(frames, cluster=self._cluster, max_bytes=self._bytes_max)
            return self._from_agent(origin, decoded, who, now)
        return self._from_client(origin, frames, who)

    def _from_client(self, origin: str, frames: Sequence[Frame], who: Principal) -> Decoded[Message]:
        try:
            message = _CLIENTS.decode(frames, cluster=self._cluster, max_bytes=self._bytes_max).message
        except FrameRefused as refused:
            if refused.reason != "tag":
                raise
            raise FrameRefused("kind", f"{who.name} is no agent, and may not say {refused}") from None
        if not origin.startswith(CLIENT_PREFIX):
            raise FrameRefused("sender", f"{who.name} is no agent, and cannot be reached at {origin}")
        return Decoded(origin, _by(message, who))

    def _from_agent(
        self, origin: str, decoded: Decoded[Message], who: Principal, now: float
    ) -> Decoded[Message]:
        sender, message = decoded.sender, decoded.message
        if isinstance(message, FROM_CLIENTS):
            if not isinstance(message, Call) or message.verb not in OPEN_CALLS["agent"]:
                raise FrameRefused("kind", f"{who.name} is an agent, and no client")
            return Decoded(origin, _by(message, who))
        if not _listens(sender):
            raise FrameRefused("sender", f"{who.name} says from nowhere what only agents say")
        if owner := self._other_owner(who.name, sender, now):
            raise FrameRefused(
                "sender",
                f"{who.name} speaks as {sender[:64]}, which is {owner}'s (elf leave --dead {owner}, if that "
                "is gone for good)",
            )
        if not _is_own(message, who.name, sender):
            kind = type(message).__name__
            raise FrameRefused("sender", f"{who.name} at {sender} says a {kind} for another agent")
        return decoded

    # -- addresses -------------------------------------------------------------------------------------------

    def _other_owner(self, name: str, address: str, now: float) -> str:
        """Who is at an address, if it is not the agent of that name."""
        if self._seen != self._log.last:
            self._seen = self._log.last
            self._granted.clear()
        names = self._granted.get(address)
        if names is None:
            names = frozenset(member.name for member in self._log.there(address))
            if names:
                self._granted[address] = names
        if names:
            return "" if name in names else min(names)
        return self._claim(name, address, now)

    def _claim(self, name: str, address: str, now: float) -> str:
        """The same, where the log has nobody."""
        first, used = self._claims.get(address, (name, now))
        if first != name and now - used < CLAIM_SECS:
            return first
        self._claims[address] = name, now
        self._claims.move_to_end(address)
        own = [at for at, (claimed, _) in self._claims.items() if claimed == name]
        if len(own) > CLAIMS_OF_ONE_MAX:
            del self._claims[own[0]]
        while len(self._claims) > CLAIMS_MAX:
            self._claims.popitem(last=False)
        return ""


def _listens(sender: str) -> bool:
    """Whether it is an address, and not a client's return address."""
    return ":" in sender and not sender.startswith(CLIENT_PREFIX)


def _is_own(message: Message, name: str, address: str) -> bool:
    """Whether what a message says of its sender is the sender's own."""
    match message:
        case JoinStream():
            return message.name == name and message.address == address
        case MoveJobGroup():
            return message.leader == address
        case ReconfigureJob():
            return message.origin == address
        case base.Message():
            return True
        case _:
            return message.sender.address == address


def _by(message: base.Message, who: Principal) -> base.Message:
    """A client's message under its own name."""
    if isinstance(message, Execute | Call):
        return msgspec.structs.replace(message, creator=who.name)
    return message
