"""The whole query for Spark, over a view ``rows`` (the columns, and ``_ts`` BIGINT, event time in µs).

It groups by window and keys into the same columns that the master's ``groups`` has, and ends in the same
final fragment. Window bounds are integer arithmetic (``pmod``, so that times before 1970 are right); a
sliding window's rows are multiplied, one for each window that they are in. The session's time zone must be
UTC.
"""

from __future__ import annotations

from elf.ql.expressions import Expr
from elf.ql.plan import Window
from elf.ql.render import render
from elf.ql.render_cells import partial_rows
from elf.ql.render_final import render_final
from elf.ql.render_map import where_clause
from elf.ql.rules import Draft
from elf.ql.states import States


def render_spark(draft: Draft, states: States) -> str:
    """The same columns and rows as the live answer, in the same order."""
    return render_final(draft, states, "spark", f"(\n{_indent(_groups(draft, states))}\n  )")


def _groups(draft: Draft, states: States) -> str:
    window = draft.window
    start = (
        "" if window is None else "w.start" if window.slide_us < window.size_us else _tumbling_start(window)
    )
    bounds = []
    if window is not None:
        bounds = [
            f"timestamp_micros({start}) AS window_start",
            f"timestamp_micros({start} + {window.size_us}L) AS window_end",
        ]
    keys = [render(key, "spark") for key in draft.keys]
    grouping = ", ".join([*([start] if window is not None else []), *keys])

    def scan(conditions: tuple[Expr, ...]) -> list[str]:
        lines = ["FROM rows AS r"]
        if window is not None and window.slide_us < window.size_us:
            lines.append(f"LATERAL VIEW explode({_starts(window)}) w AS start")
        return [*lines, *_where(window, conditions)]

    return partial_rows(draft, states, "spark", bounds, scan, grouping)


def _where(window: Window | None, wanted: tuple[Expr, ...]) -> list[str]:
    conditions = where_clause(wanted, "spark")
    if window is None:
        return conditions
    timed = "WHERE r._ts IS NOT NULL"
    if not conditions:
        return [timed]
    body = conditions[0].removeprefix("WHERE ")
    return [f"{timed} AND ({body})"]


def _tumbling_start(window: Window) -> str:
    return f"(r._ts - pmod(r._ts, {window.size_us}L))"


def _starts(window: Window) -> str:
    """Starts of the windows that hold ``_ts``: multiples of the slide in ``(_ts - size, _ts]``."""
    size, slide = window.size_us, window.slide_us
    first = f"r._ts - {size}L - pmod(r._ts - {size}L, {slide}L) + {slide}L"
    last = f"r._ts - pmod(r._ts, {slide}L)"
    return f"sequence({first}, {last}, {slide}L)"


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
