"""What the owner of a host lets nobody see of its logs: columns that are masked (``streams.NAME.mask``).

``truncate`` leaves the network of an address (IPv4 to /24, IPv6 to /48), and nothing of what is no address;
``hash`` leaves 16 hex digits that are the same for equal values on this host and mean nothing elsewhere, as
the key never leaves its data folder; ``drop`` leaves NULL. What no line can be rewritten for with certainty
is refused (``unmaskable``). ``agents.tasks.masking`` rewrites the lines.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from elf.errors import UserError
from elf.schema import EVENT_TIMES
from elf.security.files import read_secret, write

HOWS: Final = ("truncate", "hash", "drop")
ACCESS: Final[Mapping[str, tuple[str, ...]]] = {
    "c_ip": HOWS,
    **dict.fromkeys(
        ("cs_username", "cs_request", "cs_uri_query", "cs_referer", "cs_user_agent", "extra"), HOWS[1:]
    ),
}
"""Columns of access logs that can be masked, and how."""
ANY: Final = "*"
"""In place of a column: any other key of a line."""
KEY_FILE: Final = "mask.key"
KEY_BYTES: Final = 32
WITHHELD: Final = '"(a line that does not parse, withheld: its stream is masked)'
"""Instead of such a line; with a quote that has no fellow it is one itself in every format that has such."""
_HASH_BYTES: Final = 8
_BITS: Final = {4: 24, 6: 48}
_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_FOUR: Final = re.compile(rf"({_BYTE}[.]{_BYTE}[.]{_BYTE})[.]{_BYTE}(?::[0-9]+)?")
"""What nearly every address is, without a detour."""
VALUES_KNOWN: Final = 1 << 14
KNOWN_CHARS_MAX: Final = 64
"""What is left of so many values, none longer than that, is remembered: few values are new, of many lines."""


def masked(how: str, value: str | None, key: bytes) -> str | None:
    """What is left of a value."""
    if value is None or how == "drop":
        return None
    return _known(how, value, key) if len(value) <= KNOWN_CHARS_MAX else _left(how, value, key)


def _left(how: str, value: str, key: bytes) -> str | None:
    if how == "hash":
        return hashlib.blake2b(value.encode(), key=key, digest_size=_HASH_BYTES).hexdigest()
    return truncated(value)


_known: Final = lru_cache(VALUES_KNOWN)(_left)


def truncated(value: str) -> str | None:
    """The network of an address, which may have a port; None of what is none."""
    if (four := _FOUR.fullmatch(value)) is not None:
        return f"{four[1]}.0"
    host = value.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        # Those that have an IPv4 address in their first 48 bits, or are one.
        address = address.ipv4_mapped or address.sixtofour or address
    return str(ipaddress.ip_network((address, _BITS[address.version]), strict=False).network_address)


def unmaskable(
    format_: str,
    mask: Mapping[str, str],
    timestamp: str | None,
    columns: Mapping[str, str],
    known: Mapping[str, tuple[str, ...]] | None = ACCESS,
) -> Iterator[str]:
    """Why a stream with these settings cannot be masked so. ``known``: see ``agents.formats.maskable``."""
    timestamps = EVENT_TIMES if timestamp is None else (timestamp,)
    own, kinds = {name.lower() for name in timestamps}, {name.lower(): kind for name, kind in columns.items()}
    if mask and known is None:
        yield f"lines of format {format_} cannot be masked"
        return
    for name, how in mask.items():
        if known:
            hows = known.get(name.lower(), known[ANY]) if ANY in known else known.get(name, ())
            if not hows:
                able = ", ".join(one for one in known if known[one] and one != ANY)
                yield f"{name} cannot be masked in format {format_}; {able or 'nothing'} can"
                continue
            if how not in hows:
                other = " or ".join(hows)
                yield (
                    f"{name} holds no addresses to truncate; {other} it"
                    if how == "truncate"
                    else (f"{name} cannot be left as {how} leaves it; {other} it")
                )
                continue
        if '"' in name:
            yield f"{name} has quotes; a mask names keys by their path, such as user.address"
            continue
        if any(f"{one}.".startswith(f"{name.lower()}.") for one in own) or name.startswith("_"):
            yield f"{name} is what elf itself goes by, and cannot be masked"
        elif how != "drop" and (kind := kinds.get(name.lower(), "text")) != "text":
            yield f"{name} is declared as {kind}, and {how} leaves text; drop it, or declare text"


def read_key(folder: Path) -> bytes:
    """The key of a data folder, made when it is not there. Raises ``UserError``."""
    path = folder / KEY_FILE
    if not path.exists():
        write(path, os.urandom(KEY_BYTES), only_new=True)
    key = read_secret(path)
    if len(key) != KEY_BYTES:
        raise UserError(f"{path} is damaged: {len(key)} bytes; without it equal values get other hashes")
    return key
