"""Functions for the contents of web logs: JSON, addresses, URLs, user agents.

The last three are regular expressions and CASE, so they mean the same in both engines by construction. None
is a validator: a URL is split as RFC 3986 (appendix B) does it, a user agent by the first line of a table
that it matches.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from elf.ql.expressions import Call, Constant, Expr, Kind, Spelled, connect
from elf.ql.signatures import (
    Arguments,
    Build,
    Function,
    Misuse,
    case,
    constant_integer,
    constant_text,
    count,
    extract,
    fixed,
    matches,
    spelled,
    want,
)
from elf.ql.templates import text_literal

_T: Kind = "text"

# -- JSON ----------------------------------------------------------------------------------------------------

_STEP = re.compile(
    r"""\.([A-Za-z_][\w-]*)|\["([^"'\\\]\[]+)"\]|\['([^"'\\\]\[]+)'\]|\[(\d{1,9})\]""", re.ASCII
)


def json_path(steps: tuple[str | int, ...], rest: str = "") -> Spelled:
    """A path as each engine writes it."""
    duckdb = "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in steps)
    spark = "$" + "".join(f"[{step}]" if isinstance(step, int) else f"['{step}']" for step in steps)
    return Spelled(text_literal(duckdb + rest, "duckdb"), text_literal(spark + rest, "spark"))


def _steps(args: Arguments, index: int) -> tuple[str | int, ...]:
    if index >= len(args):
        return ()
    path = constant_text(args, index)
    found: list[str | int] = []
    at = 1 if path.startswith("$") else 0
    while 0 < at < len(path) and (step := _STEP.match(path, at)):
        found.append(int(step[4]) if step[4] else step[1] or step[2] or step[3])
        at = step.end()
    if at != len(path) or not path:
        raise Misuse("wants a path such as $.user.tags[0] or $['a key'] here", index)
    return tuple(found)


def _json(op: str, kind: Kind, least: int) -> Build:
    def build(args: Arguments) -> Expr:
        count(args, least, 2)
        return Call(op, (want(args, 0, "text"), json_path(_steps(args, 1))), kind)

    return build


def json_text(document: Expr, steps: tuple[str | int, ...]) -> Expr:
    """What json_extract_string and ``->>`` are."""
    return Call("json text", (document, json_path(steps)), "text")


def _json_contains(args: Arguments) -> Expr:
    count(args, 2, 3)
    steps, value = _steps(args[:-1], 1), args[-1]
    if not isinstance(value, Constant) or value.kind not in ("text", "bigint"):
        raise Misuse("wants a constant, a text or an integer, here", len(args) - 1)
    wanted = spelled(str(value.value))
    return Call(
        "json contains", (want(args, 0, "text"), json_path(steps), json_path(steps, "[*]"), wanted), "boolean"
    )


JSON: Final[tuple[Function, ...]] = (
    Function("json_extract_string", "json_extract_string(json, path)",
             "the text, boolean or number at the path, as text (a number with a fraction only from 0.001 to "
             "below 10,000,000); NULL for anything else",
             """json_extract_string('{"a": {"b": ["x"]}}', '$.a.b[0]')""", "'x'",
             _json("json text", "text", 2), ("get_json_object",)),
    Function("json_extract_number", "json_extract_number(json, path)",
             "the number at the path, a double; NULL for anything else",
             """json_extract_number('{"ms": 12.5}', '$.ms')""", "12.5", _json("json number", "double", 2)),
    Function("json_array_length", "json_array_length(json[, path])",
             "number of elements of the array; NULL for anything else",
             """json_array_length('["a", "b"]')""", "2", _json("json length", "bigint", 1)),
    Function("json_array_contains", "json_array_contains(json[, path], constant)",
             "whether the text or integer is an element of the array; NULL for what is no array",
             """json_array_contains('{"tags": ["a", "b"]}', '$.tags', 'b')""", "TRUE", _json_contains),
    Function("json_valid", "json_valid(text)", "whether it is JSON (RFC 8259)", """json_valid('{"a": 1,}')""",
             "FALSE", fixed((_T,), "boolean", "json valid")),
)  # fmt: skip

# -- addresses -----------------------------------------------------------------------------------------------

_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_MAPPED = "^(?:::[fF]{4}:)?"
_IP4 = f"{_MAPPED}{'[.]'.join([_BYTE] * 4)}$"
_G = "[0-9a-fA-F]{1,4}"
_IP6 = "|".join(
    [
        f"{_G}(?::{_G}){{7}}",
        f"(?:{_G}:){{1,7}}:",
        *(f"(?:{_G}:){{1,{7 - after}}}(?::{_G}){{{after}}}" for after in range(1, 7)),
        f":(?::{_G}){{1,7}}",
        "::",
    ]
)
_IP6 = f"^(?:{_IP6})$"


def _ip_version(args: Arguments) -> Expr:
    count(args, 1, 1)
    text = want(args, 0, "text")
    four, six = (Constant(version, "bigint") for version in (4, 6))
    return case(matches(text, _IP4), four, matches(text, _IP6), six, Constant(None, "bigint"))


def _ip_in(args: Arguments) -> Expr:
    """As one regular expression, so that a row costs one match."""
    count(args, 2, 2)
    text, network = want(args, 0, "text"), constant_text(args, 1)
    try:
        found = ipaddress.ip_network(network, strict=False)
    except ValueError as error:
        raise Misuse("wants a network such as 10.0.0.0/8 or 2001:db8::/32 here", 1) from error
    if isinstance(found, ipaddress.IPv4Network):
        return matches(text, _four_in(found))
    expanded = Call("ip6 expanded", (text,), "text")
    return connect("and", (matches(text, _IP6), matches(expanded, _six_in(found))))


def _four_in(network: ipaddress.IPv4Network) -> str:
    parts = []
    for first, last in zip(network.network_address.packed, network.broadcast_address.packed, strict=True):
        parts.append(_BYTE if last - first == 255 else f"(?:{'|'.join(map(str, range(first, last + 1)))})")
    return f"{_MAPPED}{'[.]'.join(parts)}$"


def _six_in(network: ipaddress.IPv6Network) -> str:
    """Group by group; zeros at the start of a group may be there or not."""
    first, last = network.network_address.packed, network.broadcast_address.packed
    groups = []
    for at in range(0, 16, 2):
        low, high = int.from_bytes(first[at : at + 2]), int.from_bytes(last[at : at + 2])
        digits = [f"[{_hexes(low >> shift & 15, high >> shift & 15)}]" for shift in (12, 8, 4, 0)]
        ways = ["".join(digits)]
        for start in range(1, 4):
            if low >> (16 - 4 * start):
                break
            ways.append("".join(digits[start:]))
        groups.append(f"(?:{'|'.join(ways)})")
    return f"^{':'.join(groups)}$"


def _hexes(low: int, high: int) -> str:
    return "0123456789abcdef"[low : high + 1]


def _ip_prefix(args: Arguments) -> Expr:
    """The network of an IPv4 address at a whole number of bytes."""
    count(args, 2, 2)
    text, bits = want(args, 0, "text"), constant_integer(args, 1, 8, 24)
    if bits % 8:
        raise Misuse("wants 8, 16 or 24 here", 1)
    pattern = f"{_MAPPED}((?:{_BYTE}[.]){{{bits // 8}}}){'[.]'.join([_BYTE] * (4 - bits // 8))}$"
    rest = Constant(".".join(["0"] * (4 - bits // 8)) + f"/{bits}", "text")
    return Call("||", (extract(text, pattern.replace("(25", "(?:25"), 1), rest), "text")


ADDRESSES: Final[tuple[Function, ...]] = (
    Function("ip_version", "ip_version(address)",
             "4 or 6; NULL for what is no address. IPv4 within IPv6 (::ffff:10.0.0.1) counts as 4 everywhere",
             "ip_version('::1')", "6", _ip_version),
    Function("ip_in", "ip_in(address, network)",
             "whether it is an address of the network, a constant; FALSE for what is no address",
             "ip_in('10.1.2.3', '10.0.0.0/8')", "TRUE", _ip_in),
    Function("ip_prefix", "ip_prefix(address, bits)",
             "the network of an IPv4 address, of 8, 16 or 24 bits; NULL for what is none",
             "ip_prefix('10.1.2.3', 24)", "'10.1.2.0/24'", _ip_prefix),
)  # fmt: skip

# -- URLs ----------------------------------------------------------------------------------------------------

_HOST = r"(?:\[[^\]/?#]*\]|[^/?#:@]*)"
_AUTHORITY = "^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#]*@)?"
_CONNECT = r"^(?:\[[^\]/?#]*\]|[^\[\]/?#:@]+):[0-9]+$"
"""A host and a port, as CONNECT asks for them (RFC 9112, 3.2.3): to RFC 3986 it is a scheme and a path."""


def _url(pattern: str, connect: str | None = None) -> Build:
    """The group of a pattern; for what CONNECT asks for, that of another pattern, or nothing."""

    def build(args: Arguments) -> Expr:
        count(args, 1, 1)
        text = want(args, 0, "text")
        asked = extract(text, connect, 1) if connect else Constant(None, "text")
        return case(matches(text, _CONNECT), asked, extract(text, pattern, 1))

    return build


def _part(pattern: str) -> Build:
    def build(args: Arguments) -> Expr:
        count(args, 1, 1)
        return extract(want(args, 0, "text"), pattern, 1)

    return build


def _url_parameter(args: Arguments) -> Expr:
    count(args, 2, 2)
    name = constant_text(args, 1)
    if not re.fullmatch(r"[A-Za-z0-9_.~\[\]%+-]+", name):
        raise Misuse("wants the name of a parameter as the URL writes it (percent-encoded) here", 1)
    return extract(want(args, 0, "text"), rf"^[^#?]*\?(?:[^#]*&)?{_quoted(name)}=([^&#]*)", 1)


def _quoted(text: str) -> str:
    return re.sub(r"([.~\[\]%+-])", r"[\1]", text).replace("[[]", r"\[").replace("[]]", r"\]")


URLS: Final[tuple[Function, ...]] = (
    Function("url_scheme", "url_scheme(url)", "the scheme; NULL if there is none",
             "url_scheme('https://example.org/')", "'https'", _url(r"^([A-Za-z][A-Za-z0-9+.-]*):")),
    Function("url_host", "url_host(url)", "the host, without user and port; NULL if there "
             "is none. What CONNECT asks for, "
             "`example.org:443`, is a host and a port",
             "url_host('https://example.org:8080/a?b=1')", "'example.org'",
             _url(rf"{_AUTHORITY}({_HOST})(?:[:/?#]|$)", rf"^({_HOST}):")),
    Function("url_port", "url_port(url)", "the port, as text; NULL if there is none",
             "url_port('https://example.org:8080/')", "'8080'",
             _url(rf"{_AUTHORITY}{_HOST}:([0-9]+)(?:[/?#]|$)", ":([0-9]+)$")),
    Function("url_path", "url_path(url)", "the path, of a whole URL or a request; NULL if it is empty",
             "url_path('/cart/7?step=2')", "'/cart/7'",
             _url(r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/?#]*)?([^?#]*)")),
    Function("url_query", "url_query(url)", "what stands after the question mark; NULL if there is nothing",
             "url_query('/cart/7?step=2#top')", "'step=2'", _part(r"^[^?#]*\?([^#]*)")),
    Function("url_fragment", "url_fragment(url)", "what stands after #; NULL if there is nothing",
             "url_fragment('/a#top')", "'top'", _part(r"#((?s:.*))$")),
    Function("url_parameter", "url_parameter(url, name)",
             "the last value of a parameter, as it is written (not decoded); NULL if there is none",
             "url_parameter('/search?q=duck&page=2', 'page')", "'2'", _url_parameter),
)  # fmt: skip

# -- user agents ---------------------------------------------------------------------------------------------

CRAWLER: Final = (
    r"(?i)bot\b|bot/|crawl|spider|slurp|facebookexternalhit|mediapartners|bingpreview|archiver|feedfetcher"
)
BROWSERS: Final = (
    ("Crawler", CRAWLER),
    ("Edge", "Edg(?:e|A|iOS)?/"),
    ("Opera", "OPR/|OPiOS/|Opera"),
    ("Samsung Internet", "SamsungBrowser/"),
    ("Yandex", "YaBrowser/"),
    ("Vivaldi", "Vivaldi/"),
    ("UC Browser", "UCBrowser/|UCWEB"),
    ("Firefox", "Firefox/|FxiOS/"),
    ("Internet Explorer", "MSIE |Trident/"),
    ("Chrome", "Chrome/|CriOS/|Chromium/"),
    ("Android Browser", "Android.*Version/[0-9.]+"),
    ("Safari", "Safari/|AppleWebKit/"),
    ("curl", "^curl/"),
    ("Wget", "^Wget/"),
    ("Program", "(?i)python|go-http-client|java/|okhttp|httpclient|libwww|axios|node-fetch|php/|ruby"),
)
"""Families of browsers, each with the pattern of its user agents; the first that matches counts."""
SYSTEMS: Final = (
    ("Windows", "Windows"),
    ("Android", "Android"),
    ("iOS", "iPhone|iPad|iPod"),
    ("macOS", "Macintosh|Mac OS X|Darwin"),
    ("ChromeOS", "CrOS"),
    ("Linux", "Linux|X11; U|Ubuntu"),
    ("BSD", "(?:Free|Open|Net)BSD"),
)
"""Families of operating systems, likewise."""


def _family(table: tuple[tuple[str, str], ...]) -> Build:
    def build(args: Arguments) -> Expr:
        count(args, 1, 1)
        text = want(args, 0, "text")
        parts: list[Expr] = [Call("is_null", (text,), "boolean"), Constant(None, "text")]
        for family, pattern in table:
            parts += [matches(text, pattern), Constant(family, "text")]
        return Call("case", (*parts, Constant("Other", "text")), "text")

    return build


def _is_crawler(args: Arguments) -> Expr:
    count(args, 1, 1)
    return matches(want(args, 0, "text"), CRAWLER)


USER_AGENTS: Final[tuple[Function, ...]] = (
    Function("browser", "browser(user_agent)",
             f"the family of the browser: {', '.join(name for name, _ in BROWSERS)}, else Other",
             "browser('Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0')", "'Firefox'",
             _family(BROWSERS), ("user_agent_browser",)),
    Function("operating_system", "operating_system(user_agent)",
             f"the family of the operating system: {', '.join(name for name, _ in SYSTEMS)}, else Other",
             "operating_system('Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36')", "'Windows'",
             _family(SYSTEMS), ("os", "user_agent_os")),
    Function("is_crawler", "is_crawler(user_agent)", "whether it names itself a crawler",
             "is_crawler('Mozilla/5.0 (compatible; Googlebot/2.1)')", "TRUE", _is_crawler),
)  # fmt: skip
