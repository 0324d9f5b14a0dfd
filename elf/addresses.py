"""Where a party is reached: ``host:port``, with an IPv6 host in brackets. Pure text; nothing is looked up."""

from __future__ import annotations

from typing import Final

from elf.errors import UserError

PORT_MAX: Final = 65535
CLIENT_PREFIX: Final = "client:"
"""Begins the return address of a party that nobody can connect to (hexadecimal identity behind it)."""
_ANY: Final = frozenset({"0.0.0.0", "[::]", "*"})


class AddressError(UserError):
    """Text that is no ``host:port``; the message says what is wrong with it."""


def split_address(text: str) -> tuple[str, int]:
    """Host and port (0: any free one). Raises ``AddressError``."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise AddressError(f"{text!r} is not host:port")
    if not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise AddressError(f"{text!r} has no port from 0 to {PORT_MAX}")
    if any(mark in host for mark in "/ \t@") or (":" in host and not (host[0] == "[" and host[-1] == "]")):
        raise AddressError(f"{text!r} has no usable host (an IPv6 host goes in brackets)")
    return host, int(port)


def is_wildcard(host: str) -> bool:
    """True for a host that one can listen on but not be reached at."""
    return host in _ANY


def is_loopback(host: str) -> bool:
    """True for a host that only this machine reaches."""
    if host in ("localhost", "[::1]"):
        return True
    parts = host.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isascii() and part.isdigit() for part in parts)


def clash(one: str | None, other: str | None) -> bool:
    """Whether one cannot listen on both at once. None: nowhere."""
    if not one or not other:
        return False
    (host, port), (another, same) = split_address(one), split_address(other)
    return port == same != 0 and (host == another or is_wildcard(host) or is_wildcard(another))
