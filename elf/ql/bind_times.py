"""Intervals and time zones: ``ts + INTERVAL 5 MINUTES``, ``ts AT TIME ZONE '+02:00'``.

An interval is a constant beside + or -, never a value of its own. A week and what is shorter is a number of
microseconds; a month and what is longer keeps the day of the month, or takes the month's last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from elf.ql.expressions import Call, Constant, Expr
from elf.ql.functions_time import INTERVAL_MONTHS, INTERVAL_US, shift_us
from elf.ql.kinds import become, common
from elf.ql.scope import Scope
from elf.ql.signatures import written

MONTHS_MAX: Final = 120_000


def shift(node: exp.Binary, op: str, scope: Scope) -> Expr | None:
    """A timestamp and an interval; None when there is no interval."""
    moment_node, interval = node.left, node.right
    if isinstance(moment_node, exp.Interval) and op == "+":
        moment_node, interval = interval, moment_node
    if not isinstance(interval, exp.Interval):
        return None
    if op not in ("+", "-"):
        scope.fail(node, f"{op} with an interval is not supported")
    moment = scope.bind(moment_node)
    if common((moment.kind, "timestamp")) != "timestamp":
        scope.fail(moment_node, f"an interval is added to a timestamp, this is {moment.kind}")
    months, us = _length(interval, scope)
    sign = 1 if op == "+" else -1
    moment = become(moment, "timestamp")
    if months:
        return Call("add months", (moment, written(sign * months)), "timestamp")
    return shift_us(moment, Constant(sign * us, "bigint"))


def _length(node: exp.Interval, scope: Scope) -> tuple[int, int]:
    """Months and microseconds."""
    number, unit = node.this, node.args.get("unit")
    text = number.name if isinstance(number, exp.Literal) else ""
    if unit is None or not re.fullmatch(r"-?[0-9]{1,15}", text):
        scope.fail(node, "INTERVAL takes a whole number and one unit, as in INTERVAL 5 MINUTES")
    name = str(unit.name).upper().removesuffix("S")
    if name in INTERVAL_MONTHS:
        months = int(text) * INTERVAL_MONTHS[name]
        if abs(months) > MONTHS_MAX:
            scope.fail(node, f"an interval of more than {MONTHS_MAX} months is not supported")
        return months, 0
    if name not in INTERVAL_US:
        known = ", ".join([*INTERVAL_US, *INTERVAL_MONTHS])
        scope.fail(node, f"INTERVAL does not know the unit {unit.name}; there are {known}")
    us = int(text) * INTERVAL_US[name]
    if abs(us) >= 2**62:
        scope.fail(node, "this interval is too long")
    return 0, us


def _bind_zone(node: exp.AtTimeZone, scope: Scope) -> Expr:
    """What clocks show at that offset from UTC, as a timestamp."""
    moment = scope.bind(node.this)
    if common((moment.kind, "timestamp")) != "timestamp":
        scope.fail(node.this, f"AT TIME ZONE needs a timestamp, this is {moment.kind}")
    zone = node.args["zone"]
    name = zone.name if isinstance(zone, exp.Literal) and zone.is_string else ""
    if name.upper() in ("UTC", "Z", "GMT"):
        return become(moment, "timestamp")
    found = re.fullmatch(r"([+-])(\d{1,2}):?(\d{2})", name, re.ASCII)
    if found is None or int(found[2]) > 18 or int(found[3]) > 59:
        scope.fail(
            zone,
            "AT TIME ZONE takes 'UTC' or an offset such as '+02:00': DuckDB and Spark carry tables of "
            "named zones that are not the same",
        )
    minutes = int(found[2]) * 60 + int(found[3])
    us = minutes * 60_000_000 * (-1 if found[1] == "-" else 1)
    return shift_us(become(moment, "timestamp"), Constant(us, "bigint"))


def _bind_interval(node: exp.Interval, scope: Scope) -> Expr:
    return scope.fail(node, "an interval stands after + or - of a timestamp, as in ts + INTERVAL 5 MINUTES")


TIMES: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = {
    exp.AtTimeZone: _bind_zone,
    exp.Interval: _bind_interval,
}
"""The nodes of times."""
