"""What answers at an address: an agent's transport, something else, or nothing; said in a line.

ZeroMQ itself would try for ever and not say why. Both sides of one of its connections begin with a signature
at once, so who says something else, or nothing, is no agent. Who is silent is asked by HTTP, since the port
of an agent's ``http.listen`` is the one that is taken for its ``agent.listen``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

from elf.addresses import split_address

CONNECT_SECS: Final = 2.0
"""For a connection: long enough for a first packet that is lost and sent again after a second."""
SIGNATURE_SECS: Final = 1.0
"""Until who has taken the connection says something."""
ANSWER_SECS: Final = 1.0
"""For an answer by HTTP."""
SERVER: Final = "elf-agent"
"""The ``Server`` of an agent's HTTP answers."""

_SIGNATURE: Final = b"\xff"
"""How ZMTP begins (3.x, section "Signature"); no text protocol does."""
_GREETS: Final = b"\xff" + b"\0" * 8 + b"\x7f\x03"
"""As much of a greeting as the other side waits for until it tells its mechanism, which is at this place."""
_MECHANISM: Final = slice(12, 32)
_SEEN_BYTES: Final = 512
_SHOWN_CHARS: Final = 40
_ASK: Final = b"GET /health HTTP/1.0\r\n\r\n"


async def probe(address: str, patience: float = 1.0) -> str:
    """Why no agent can be talked to at ``host:port``; empty when the transport of one is there (of whatever
    cluster). ``patience``: a factor on the time limits. Raises ``AddressError``."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(CONNECT_SECS * patience):
            reader, writer = await asyncio.open_connection(host.strip("[]"), port)
    except TimeoutError:
        secs = f"{CONNECT_SECS * patience:g}"
        return f"no connection within {secs} s (is the host up, and does a firewall let port {port} through?)"
    except (OSError, UnicodeError) as error:
        return _reason(error, host)
    try:
        return await _speaks(reader, writer, patience)
    except OSError as error:
        return f"what listens there is no elf-agent: it ends the connection ({_words(error)})"
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def has_keys(address: str) -> bool | None:
    """Whether the transport at ``host:port`` wants keys, as its greeting says; None where it says nothing."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(CONNECT_SECS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), port)
            try:
                writer.write(_GREETS)
                greeting = await reader.readexactly(_MECHANISM.stop)
            finally:
                writer.close()
    except (OSError, EOFError, UnicodeError):
        return None
    return greeting[_MECHANISM].rstrip(b"\0") == b"CURVE"


async def _speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> str:
    said = await _first(reader, SIGNATURE_SECS * patience)
    if said is None:
        writer.write(_ASK)
        said = await _first(reader, ANSWER_SECS * patience)
    if said and said.startswith(_SIGNATURE):
        return ""
    if said is None:
        return "what listens there says nothing: it is no elf-agent, or one that is stopped"
    if said.startswith(b"HTTP/"):
        if f"\r\nserver: {SERVER}\r\n".encode() in said.lower():
            return (
                "that is the http.listen of an elf-agent; use its agent.listen (port 7071 if it is not set)"
            )
        return "what listens there is an HTTP server and no elf-agent"
    if not said:
        return "what listens there is no elf-agent: it ends the connection"
    line = said.decode("ascii", "replace").splitlines()[0][:_SHOWN_CHARS]
    shown = line if line.isprintable() and "\ufffd" not in line else f"0x{said[:8].hex()}"
    return f"what listens there is no elf-agent: it says {shown!r}"


async def _first(reader: asyncio.StreamReader, limit_secs: float) -> bytes | None:
    """What is said first; empty: the connection has ended; None: nothing in time."""
    try:
        async with asyncio.timeout(limit_secs):
            return await reader.read(_SEEN_BYTES)
    except TimeoutError:
        return None


def _reason(error: OSError | UnicodeError, host: str) -> str:
    """The system's words, without numbers; asyncio joins several tries into one long text."""
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error).lower():
        return "connection refused (is elf-agent running there?)"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"no such host: {host} cannot be resolved"
    return _words(error)


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
