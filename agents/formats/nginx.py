"""nginx: the text of a ``log_format``, as it stands in nginx.conf or as its value alone, to a layout.

The variables are those of nginx's documentation (ngx_http_log_module, ngx_http_core_module,
ngx_http_upstream_module, ngx_http_ssl_module); what a variable logs under another name in ``combined`` has
that name here too, so that a query reads either. Of a variable that says how several upstream servers were
asked (``0.01, 0.02 : 0.03``) the last one counts, who answered; all of them are beside it, in a ``_list``.
Other variables are texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from agents.formats.fields import Field
from agents.formats.layout import Layout, Piece
from agents.formats.requests import TAKEN_APART
from agents.formats.saying import cannot

NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "remote_addr": ("c_ip", "word"),
    "remote_port": ("c_port", "whole"),
    "remote_user": ("cs_username", "free"),
    "request": ("cs_request", "request"),
    "request_method": ("cs_method", "word"),
    "request_uri": ("request_uri", "uri"),
    "uri": ("cs_uri_stem", "free"),
    "args": ("cs_uri_query", "word"),
    "query_string": ("cs_uri_query", "word"),
    "server_protocol": ("cs_version", "word"),
    "status": ("sc_status", "whole"),
    "body_bytes_sent": ("sc_bytes", "whole"),
    "http_referer": ("cs_referer", "free"),
    "http_user_agent": ("cs_user_agent", "free"),
    "host": ("cs_host", "word"),
    "http_host": ("cs_host", "word"),
    "server_name": ("cs_host", "word"),
    "server_addr": ("s_ip", "word"),
    "server_port": ("s_port", "whole"),
    "upstream_addr": ("upstream_addr", "list"),
}
"""The column and the kind of a variable."""
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("connection", "connection_requests", "pid", "bytes_sent", "request_length"), "whole"),
    **dict.fromkeys(("content_length", "tcpinfo_rtt", "realip_remote_port", "proxy_port"), "whole"),
    **dict.fromkeys(("request_time", "gzip_ratio", "connection_time", "session_time"), "real"),
    **dict.fromkeys(("upstream_status", "upstream_bytes_received", "upstream_bytes_sent"), "last_whole"),
    "upstream_response_length": "last_whole",
    **dict.fromkeys(("upstream_response_time", "upstream_connect_time"), "last_real"),
    **dict.fromkeys(("upstream_header_time", "upstream_queue_time", "upstream_session_time"), "last_real"),
    "proxy_add_x_forwarded_for": "free",
}
"""The kind of a variable that is a column of its own name."""
TIMES: Final[Mapping[str, str]] = {"msec": "epoch", "time_iso8601": "time", "time_local": "log_date"}
"""The finest first: it is the event time."""
_FREE: Final = ("http_", "sent_http_", "cookie_", "arg_", "upstream_http_", "ssl_client_")
_VARIABLE: Final = re.compile(r"\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))?")
_DIRECTIVE: Final = re.compile(r"\s*log_format\s+[^\s'\"$]+\s+")
_ESCAPE: Final = re.compile(r"\s*escape=(\w*)\s*")
_QUOTED: Final = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*""", re.DOTALL)
_ESCAPES: Final = ("default", "json", "none")


def is_log_format(text: str) -> bool:
    """Whether it has variables."""
    return re.search(r"\$\{?[a-z]", text) is not None


def log_format(text: str) -> Layout:
    """The layout of a ``log_format``. Raises ``ConfigError`` with the place of what is wrong."""
    value, escape = value_of(text)
    pieces = list(_pieces(value))
    name = value if escape == "default" else f"escape={escape} {value}"
    return Layout(name, _as_columns(pieces), escapes=escape == "json")


def value_of(text: str) -> tuple[str, str]:
    """The value of a directive, whose quoted pieces are put together, or of its value alone; and how it
    escapes."""
    rest = text.strip()
    directive = _DIRECTIVE.match(rest)
    if directive is not None:
        rest = rest[directive.end() :].rstrip().removesuffix(";")
    escape = "default"
    if (found := _ESCAPE.match(rest)) is not None:
        escape, rest = found[1], rest[found.end() :]
        if escape not in _ESCAPES:
            raise cannot(
                text, text.find(found[1], text.find("escape=")), f"escape is one of {', '.join(_ESCAPES)}"
            )
    pieces = []
    at = 0
    while (piece := _QUOTED.match(rest, at)) is not None:
        pieces.append(re.sub(r"\\(.)", r"\1", piece[1] if piece[1] is not None else piece[2]))
        at = piece.end()
    if pieces and at == len(rest):
        return "".join(pieces), escape
    if directive is not None:
        raise cannot(text, text.find(rest) + at, "a log_format is one or more texts in quotes")
    return rest, escape


def _pieces(value: str) -> Iterator[tuple[str, bool]]:
    """Texts and names of variables."""
    at = 0
    for found in _VARIABLE.finditer(value):
        name = found[1] or found[2]
        if name is None:
            raise cannot(value, found.start(), "a $ is followed by the name of a variable")
        if found.start() > at:
            yield value[at : found.start()], False
        elif at:
            raise cannot(
                value, found.start(), "nothing is between two variables: where one ends cannot be told"
            )
        yield name, True
        at = found.end()
    if not at:
        raise cannot(value, 0, "a log_format has variables, such as $remote_addr")
    if at < len(value):
        yield value[at:], False


def _as_columns(pieces: list[tuple[str, bool]]) -> list[Piece]:
    names = [name for name, variable in pieces if variable]
    event_time = next((name for name in TIMES if name in names), None)
    taken = set(TAKEN_APART) if "request" in names else set()
    if "request" not in names and "request_uri" in names:
        taken = {"cs_uri_stem", "cs_uri_query"}
    found: list[Piece] = []
    for text, variable in pieces:
        if not variable:
            found.append(text)
            continue
        field = field_of(text, event_time)
        if field.kind in ("request", "uri") and (
            f"{text}!" in taken or (text != "request" and "request" in names)
        ):
            field = Field(text, "free")
        elif field.name in taken:
            field = Field(text, field.kind)
        taken |= {field.name, f"{text}!"}
        found.append(field)
    return found


def field_of(variable: str, event_time: str | None = None) -> Field:
    """What a variable is."""
    if variable in TIMES:
        return Field("ts" if variable == event_time else variable, TIMES[variable])
    if variable in NAMES:
        return Field(*NAMES[variable])
    free = variable.startswith(_FREE)
    return Field(variable, KINDS.get(variable, "free" if free else "word"))
