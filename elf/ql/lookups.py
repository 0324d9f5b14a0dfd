"""Functions that look a text up in a table of the host: where an address is, what a user agent is.

The tables are too large to go with a job (a database of cities has 60 MB), and each host has its own, so a
value depends on where it is looked up. Therefore it is looked up where the row is: in WHERE, in a key of
GROUP BY or in an aggregate, and never by a master (``check_lookups``). To a plan such a call is a function
like others; both engines have it under the name that ``sql_name`` gives it (``agents.lookups``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from elf.ql.expressions import Aggregate, Call, Expr, children
from elf.ql.templates import Form, same
from elf.schema import ColumnType

if TYPE_CHECKING:
    from elf.ql.draft import Draft

Table = Literal["geoip", "useragents"]
OP: Final = "lookup "
"""Before the name of such a function, its operation."""
_PREFIX: Final = "elf_"
_CALLED: Final = re.compile(rf"\b{_PREFIX}((?:geo|ua)_\w+)\(")


class Lookup(Struct, frozen=True):
    """``kind``: of its values."""

    table: Table
    kind: ColumnType


LOOKUPS: Final = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "geo_country",
                "geo_country_name",
                "geo_continent",
                "geo_region",
                "geo_city",
                "geo_organization",
            ),
            Lookup("geoip", "text"),
        ),
        **dict.fromkeys(("geo_latitude", "geo_longitude"), Lookup("geoip", "double")),
        "geo_asn": Lookup("geoip", "bigint"),
        **dict.fromkeys(
            ("ua_browser", "ua_browser_version", "ua_os", "ua_os_version", "ua_device"),
            Lookup("useragents", "text"),
        ),
        "ua_is_bot": Lookup("useragents", "boolean"),
    }
)
"""By the name of the function."""

NEEDS: Final[Mapping[Table, str]] = MappingProxyType(
    {
        "geoip": "has no database that knows it: set geoip.databases there (elf run: --geoip FILE)",
        "useragents": "has no package ua-parser: install elf-stream[useragents] there",
    }
)
"""What is missing where a table is."""

FORMS: Final[dict[str, Form]] = {f"{OP}{name}": same(f"{_PREFIX}{name}({{0}})") for name in LOOKUPS}
"""By operation."""


def sql_name(name: str) -> str:
    """What both engines call it."""
    return f"{_PREFIX}{name}"


def lookups_in(*sql: str) -> tuple[str, ...]:
    """The functions of this kind that are called in rendered SQL."""
    found = dict.fromkeys(name for text in sql for name in _CALLED.findall(text))
    return tuple(name for name in found if name in LOOKUPS)


def check_lookups(drafts: Iterable[Draft], above: Sequence[Expr], *, joined: bool) -> None:
    """Raises ``QueryError`` for what a master would have to look up. ``drafts``: innermost first; ``above``:
    what the innermost computes of its groups; ``joined``: its rows are those of two streams, which meet at
    the master."""
    first, *others = drafts
    late = list(_beyond_rows(above))
    if joined:
        late += [name for expr in (*_of_rows(first), *above) for name in _looked_up(expr)]
    late += [name for draft in others for expr in _of_rows(draft) for name in _looked_up(expr)]
    for draft in others:
        after = [*(output.value for output in draft.outputs), *(order.value for order in draft.order)]
        late += [name for expr in (*after, draft.having, draft.qualify) if expr for name in _looked_up(expr)]
    if late:
        raise first.source.at(first.tree, f"{late[0].upper()} {_WHERE}")


_WHERE: Final = (
    "is looked up where the rows are: it stands in WHERE, GROUP BY or an aggregate (GROUP BY c_ip, "
    "geo_country(c_ip)), not above groups and not in a join of streams"
)


def _of_rows(draft: Draft) -> list[Expr]:
    return [*draft.where, *draft.keys]


def _beyond_rows(exprs: Iterable[Expr]) -> Iterator[str]:
    """Those that are not in an aggregate."""
    for expr in exprs:
        if isinstance(expr, Aggregate):
            continue
        if isinstance(expr, Call) and expr.op.startswith(OP):
            yield expr.op.removeprefix(OP)
        yield from _beyond_rows(children(expr))


def _looked_up(expr: Expr) -> Iterator[str]:
    """All of them."""
    if isinstance(expr, Call) and expr.op.startswith(OP):
        yield expr.op.removeprefix(OP)
    for child in children(expr):
        yield from _looked_up(child)
