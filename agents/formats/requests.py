"""The first line of a request, as access logs have it: its columns, and the SQL that takes it apart.

The request is ``METHOD target [VERSION]`` (RFC 9112), as clients do send it. The first word is the method,
the last one the version if it is one, and what is between the target: a URI has no blanks, but servers answer
requests that have, and a file with a blank in its name is what was asked for. Without a version a target with
blanks must be a path, and a version that is not at the end makes it none: what has neither is noise as often
as not. Blanks around the three mean nothing (RFC 9112, section 3).
"""

from __future__ import annotations

import re
from typing import Final

from agents.formats.dialect import Dialect, Step

TAKEN_APART: Final = ("cs_method", "cs_uri_stem", "cs_uri_query", "cs_version")
PARTS: Final = (*TAKEN_APART, "cs_request")
"""The columns of a request: its parts, and all of it."""
_METHOD: Final = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VERSION: Final = "(?i:HTTP|RTSP|SIP)/[0-9](?:[.][0-9])?"
"""The others are what scanners send to web servers."""
_WORDS: Final = ("_q1", "_q2", "_q3")
_REQUEST: Final = rf"^ *({_METHOD}) +(?:([^ ]|[^ ].*[^ ]) +({_VERSION})|([^ /][^ ]*|/|/.*[^ ])) *\z"
_METHOD_TARGET_VERSION: Final = ((1,), (2, 4), (3,))


def request_steps(dialect: Dialect) -> list[Step]:
    """From ``_request`` to ``_method``, ``_target`` and ``_version``, NULL where it has not these parts."""
    others = dialect.separate("_request", _REQUEST, _METHOD_TARGET_VERSION)
    method, target, version = (dialect.separated("_other", part) for part in (1, 2, 3))
    return [
        (("_q", dialect.split("_request", " ")),),
        (*dialect.named_items("_q", _WORDS), ("_words", dialect.items("_q"))),
        (("_usual", _usual(dialect)),),
        (("_other", f"CASE WHEN NOT _usual THEN {others} END"),),
        (("_proper", _proper(dialect)),),
        (
            ("_method", f"CASE WHEN _usual THEN _q1 WHEN _proper THEN {method} END"),
            ("_target", f"CASE WHEN _usual THEN _q2 WHEN _proper THEN {target} END"),
            ("_version", f"CASE WHEN _usual THEN _q3 WHEN _proper THEN nullif({version}, '') END"),
        ),
    ]


def parts_of(dialect: Dialect) -> dict[str, str]:
    """SQL of the columns, behind those steps; ``-`` is NULL, as is no request."""
    return {
        "cs_method": "nullif(_method, '-')",
        "cs_uri_stem": f"nullif({dialect.part('_target', '?', 1)}, '-')",
        "cs_uri_query": f"({dialect.behind('_target', '?')})",
        "cs_version": "_version",
        "cs_request": "CASE WHEN _request NOT IN ('-', '') THEN _request END",
    }


def _usual(dialect: Dialect) -> str:
    """Whether the request is two or three words, and obviously has its parts."""
    is_method = f"CASE WHEN _q1 IN ('GET', 'POST') THEN TRUE ELSE {dialect.matches('_q1', _METHOD)} END"
    is_version = (
        "CASE WHEN _q3 IN ('HTTP/1.1', 'HTTP/2.0') THEN TRUE"
        f" WHEN _q3 IS NULL THEN {dialect.starts_with('_q2', repr('/'))}"
        f" ELSE {dialect.matches('_q3', _VERSION)} END"
    )
    return f"(_words IN (2, 3) AND _q2 <> '' AND {is_method} AND {is_version})"


def _proper(dialect: Dialect) -> str:
    """Whether a request that is not usual has its parts all the same."""
    meant = dialect.contains("upper(' ' || _request)", "' HTTP/'")
    return f"{dialect.is_separated('_other')} AND ({dialect.separated('_other', 3)} <> '' OR NOT {meant})"


_TAKEN: Final = re.compile(_REQUEST.replace(r"\z", r"\Z"), re.DOTALL | re.ASCII)


def taken_apart(request: str) -> tuple[str, str, str]:
    """Method, target and version, each empty where it is not there; of a request that has not these parts
    nothing."""
    found = _TAKEN.match(request)
    if found is None:
        return "", "", ""
    method, target, version, only = found.groups(default="")
    if not version and " HTTP/" in f" {request}".upper():
        return "", "", ""
    return method, target or only, version
