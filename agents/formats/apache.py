"""Apache httpd: the text of a ``LogFormat``, as it stands in httpd.conf or as its value alone, to a layout.

The directives are those of mod_log_config, mod_logio and mod_ssl; what ``combined`` has a column for has that
name here too. Times taken are seconds, whatever unit the directive has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from agents.formats.fields import Field
from agents.formats.layout import Layout, Piece
from agents.formats.requests import TAKEN_APART
from agents.formats.saying import cannot

DIRECTIVES: Final[Mapping[str, tuple[str, str]]] = {
    "a": ("c_ip", "word"), "h": ("c_ip", "word"), "A": ("s_ip", "word"),
    "b": ("sc_bytes", "whole"), "B": ("sc_bytes", "whole"), "D": ("request_time", "us"),
    "f": ("filename", "free"), "H": ("cs_version", "word"), "I": ("bytes_received", "whole"),
    "k": ("keepalive_requests", "whole"), "l": ("remote_logname", "word"), "L": ("log_id", "word"),
    "m": ("cs_method", "word"), "O": ("bytes_sent", "whole"), "p": ("s_port", "whole"), "P": ("pid", "whole"),
    "q": ("cs_uri_query", "query"), "r": ("cs_request", "request"), "R": ("handler", "word"),
    "s": ("sc_status", "whole"), "S": ("bytes_total", "whole"), "T": ("request_time", "real"),
    "u": ("cs_username", "free"), "U": ("cs_uri_stem", "free"), "v": ("cs_host", "word"),
    "V": ("cs_host", "word"), "X": ("connection_status", "word"), "^FB": ("first_byte_time", "us"),
}  # fmt: skip
"""The column and the kind of a directive without an argument."""
OWN: Final[Mapping[str, str]] = {
    "h": "remote_host",
    "a": "remote_ip",
    "V": "server_name",
    "T": "request_time_s",
}
"""Names of those whose column another directive has already."""
ARGUED: Final[Mapping[str, str]] = {
    "i": "http_", "o": "sent_http_", "C": "cookie_", "e": "env_", "n": "note_", "x": "ssl_",
    "^ti": "trailer_", "^to": "sent_trailer_", "c": "ssl_",
}  # fmt: skip
"""What stands before the argument of others in the names of their columns."""
HEADERS: Final[Mapping[str, str]] = {
    "referer": "cs_referer", "user-agent": "cs_user_agent", "host": "cs_host", "cookie": "cs_cookie"
}  # fmt: skip
_UNITS: Final[Mapping[str, str]] = {"s": "real", "ms": "ms", "us": "us"}
_EPOCHS: Final = ("sec", "msec", "usec")
_TIMES: Final[Mapping[str, str]] = {
    "%d/%b/%Y:%H:%M:%S %z": "log_date", "%Y-%m-%dT%H:%M:%S%z": "time", "%Y-%m-%d %H:%M:%S": "split_date",
    "%F %T": "split_date", "%FT%T%z": "time", "%Y-%m-%dT%H:%M:%SZ": "time", "%FT%TZ": "time",
}  # fmt: skip
"""Forms of ``%{…}t`` that are read as times."""
_DIRECTIVE: Final = re.compile(
    r"%(?:%|([<>]|!?[0-9]{3}(?:,[0-9]{3})*)*(?:\{([^}]*)\})?([<>])?(\^FB|\^t[io]|[A-Za-z])?)"
)
_NAMED: Final = re.compile(
    r'\s*(?:LogFormat|CustomLog\s+\S+)\s+"((?:[^"\\]|\\.)*)"\s*[\w-]*\s*', re.IGNORECASE
)


def is_log_format(text: str) -> bool:
    """Whether it has directives."""
    return re.search(r"%[<>!0-9,]*(?:\{[^}]*\})?\^?[A-Za-z]", text) is not None


def log_format(text: str, name: str | None = None) -> Layout:
    """The layout of a ``LogFormat``. Raises ``ConfigError`` with the place of what is wrong."""
    directive = _NAMED.fullmatch(text)
    value = text.strip()
    if directive is not None or '\\"' in value:
        escaped = directive[1] if directive is not None else value
        value = re.sub(r"\\(.)", lambda of: {"t": "\t", "n": "\n"}.get(of[1], of[1]), escaped)
    return Layout(name or value, _as_columns(value), escapes=True)


def _directives(value: str) -> Iterator[tuple[int, str | Field]]:
    at = 0
    for found in _DIRECTIVE.finditer(value):
        if found.start() > at:
            yield at, value[at : found.start()]
        if found[0] == "%%":
            yield found.start(), "%"
        else:
            yield found.start(), _field(value, found)
        at = found.end()
    if at < len(value):
        yield at, value[at:]


def _field(value: str, found: re.Match[str]) -> Field:
    argument, letter = found[2], found[4]
    if letter is None:
        raise cannot(value, found.start(), "a % is followed by a directive, such as %h")
    if letter == "t":
        return _time(argument)
    if argument is not None and letter in ARGUED:
        known = HEADERS.get(argument.lower()) if letter == "i" else None
        return Field(known or ARGUED[letter] + re.sub(r"\W+", "_", argument.lower()), "free")
    if argument in _UNITS and letter in ("T", "D"):
        return Field("request_time", _UNITS[argument])
    if letter == "p" and argument == "remote":
        return Field("c_port", "whole")
    if letter == "P" and argument is not None:
        return Field("tid", "whole")
    if letter == "a" and argument == "c":
        return Field("peer_ip", "word")
    if letter not in DIRECTIVES:
        raise cannot(value, found.start(), f"{found[0]} is no directive that elf knows")
    return Field(*DIRECTIVES[letter])


def _time(argument: str | None) -> Field:
    if argument is None:
        return Field("ts", "log_date")
    form = re.sub("^(?:begin|end):", "", argument)
    kind = "epoch" if form in _EPOCHS else _TIMES.get(form)
    return Field("ts", kind) if kind is not None else Field("time_text", "free" if " " in form else "word")


def _as_columns(value: str) -> list[Piece]:
    found: list[Piece] = []
    taken: set[str] = set()
    places = list(_directives(value))
    fields = [one for _, one in places if isinstance(one, Field)]
    if not fields:
        raise cannot(value, 0, "a LogFormat has directives, such as %h")
    if any(field.kind == "request" for field in fields):
        taken = set(TAKEN_APART)
    for at, one in places:
        if isinstance(one, str):
            found.append(one)
            continue
        if found and isinstance(found[-1], Field):
            raise cannot(value, at, "nothing is between two fields: where one ends cannot be told")
        bracketed = (
            one.name == "ts" and one.kind == "log_date" and not (found and str(found[-1]).endswith("["))
        )
        field = _renamed(one, value[at:], taken)
        taken.add(field.name)
        found += ["[", field, "]"] if bracketed else [field]  # a plain %t has its brackets itself
    return _joined(found)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """With neighbouring texts as one."""
    found: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def _renamed(field: Field, text: str, taken: set[str]) -> Field:
    """With a name of its own where another directive has that column already."""
    if field.name not in taken:
        return field
    if field.kind == "request":
        return Field("cs_request", "free")
    letter = re.sub(r"^%[<>!0-9,]*(?:\{[^}]*\})?[<>]?", "", text)[:1]
    own = OWN.get(letter)
    return Field(own, field.kind) if own else field
