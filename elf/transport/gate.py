"""Limits of connections to a listener: strangers, of whom no message has come, hold little and for a moment;
and nobody holds much by a message that never ends.

libzmq itself accepts whoever comes, and gives each some seconds for its handshake: enough to use up the
descriptors of a process. So beyond a number of strangers one of them is shut out: the oldest of the host that
has most of them. A peer's handshake takes a few round trips, so a flood from elsewhere does not push it out.

libzmq keeps the frames of a message until the last one is there, however many they are. So a connection over
which much more has come than a message may have, since its last message, is shut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

STRANGERS_MAX: Final = 128
"""Connections of which no message has come. Each holds a frame that it announces at most
(``elf.transport.zeromq.PART_BYTES``)."""


OWNED_MAX: Final = 256
"""Connections of one person or token; one more, and its oldest goes."""


class Gate:
    """``host_of``: who is at the other end of a descriptor, None when it is gone. ``shut``: ends a
    connection. ``connections_max``: all of them. ``counts``: what was shut, under ``flood`` and
    ``endless``."""

    def __init__(
        self,
        host_of: Callable[[int], str | None],
        shut: Callable[[int], None],
        counts: Counter[str],
        connections_max: int,
        strangers_max: int = STRANGERS_MAX,
    ) -> None:
        self._host_of = host_of
        self._shut = shut
        self._counts = counts
        self._connections_max = connections_max
        self._strangers_max = strangers_max
        self._known: set[int] = set()
        self._owners: dict[int, str] = {}
        """Of those that belong to one person or token."""
        self._hosts: dict[int, str] = {}
        """Of strangers."""
        self._strangers: dict[str, dict[int, None]] = {}
        """By host, oldest first."""
        self._silent: dict[int, int] = {}
        """What had come over a connection when its last message had, or at the first look after that."""

    @property
    def strangers(self) -> int:
        return len(self._hosts)

    @property
    def connections(self) -> int:
        return len(self._hosts) + len(self._known)

    def accepted(self, fd: int) -> None:
        """Somebody has connected."""
        self.gone(fd)
        host = self._host_of(fd) or ""
        self._hosts[fd] = host
        self._strangers.setdefault(host, {})[fd] = None
        while self._hosts and (
            self.strangers > self._strangers_max or self.connections > self._connections_max
        ):
            most = max(self._strangers.values(), key=len)
            self._end(next(iter(most)), "flood")

    def spoke(self, fd: int, owner: str = "") -> None:
        """A message has come over it from somebody who is let in. ``owner``: the person or token, whose
        connections are bounded; empty: anybody else."""
        self._silent.pop(fd, None)
        if fd not in self._hosts:
            return
        self.gone(fd)
        self._known.add(fd)
        if owner:
            self._owners[fd] = owner
            owned = [one for one, its in self._owners.items() if its == owner]
            if len(owned) > OWNED_MAX:
                self._end(owned[0], "flood")

    def _end(self, fd: int, why: str) -> None:
        self.gone(fd)
        self._shut(fd)
        self._counts[why] += 1

    def look(self, came: Callable[[int], int | None], bytes_max: int) -> None:
        """Shut those of whom so much has come since their last message. ``came``: bytes over a connection
        since its beginning, None where nobody knows. To be called now and then, while messages are read."""
        for fd in (*self._known, *self._hosts):
            now = came(fd)
            if now is not None and now - self._silent.setdefault(fd, now) > bytes_max:
                self._end(fd, "endless")

    def all_gone(self) -> None:
        """The listener was closed, and with it every connection."""
        for fd in (*self._known, *self._hosts):
            self.gone(fd)

    def gone(self, fd: int) -> bool:
        """The connection has ended. Whether it was a stranger's."""
        self._known.discard(fd)
        self._owners.pop(fd, None)
        self._silent.pop(fd, None)
        host = self._hosts.pop(fd, None)
        if host is None:
            return False
        of_host = self._strangers[host]
        del of_host[fd]
        if not of_host:
            del self._strangers[host]
        return True
