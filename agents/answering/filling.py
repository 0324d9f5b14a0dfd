"""The history of a job: results of before it began, which ``elf offline backfill`` has made by Spark from the
archive, for its job group to keep (protocol 13.7).
"""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from agents.answering.asks import Procedure
from agents.answering.masters import Masters
from elf.batch import decode
from elf.errors import PeerError, UserError
from elf.job.messages.groups import FillHistory
from elf.ql.plan import Plan
from elf.windows import Sliding
from elf.wire.clients import Call, Filled, FillOptions, Reply, authorship_of


def fill(masters: Masters, call: Call) -> Procedure:
    """Commit results. Whoever may change the job may say what came before it."""
    try:
        options = msgspec.json.decode(call.argument, type=FillOptions)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UserError(f"results that fill a history cannot be read: {error}") from None
    spec = masters.own(options.job, call.creator)
    if not all(isinstance(kind, Sliding) for kind in spec.plan.windows):
        raise UserError(f"job {spec.name} has windows without ends of their own: its history is not filled")
    for one in options.results:
        _check(one, spec.plan)
    request = FillHistory(
        id=0,
        origin="",
        uid=spec.uid,
        version=options.version,
        results=options.results,
        author=authorship_of(call),
    )
    yield from masters.ask(spec, request)
    return Reply(request=call.request, text=f"{len(options.results)} results of job {spec.name} are kept")


_STATUS: Final = pa.schema(
    [("window_start", pa.timestamp("us")), ("window_end", pa.timestamp("us")), ("offline", pa.bool_())]
)


def _check(one: Filled, plan: Plan) -> None:
    """Raises ``UserError`` for what is no result of the job."""
    try:
        status, rows = decode(one.status), decode(one.rows)
    except PeerError as error:
        raise UserError(f"a result that fills a history cannot be read: {error}") from None
    kinds = [kind for kind in plan.windows if isinstance(kind, Sliding)]
    names = [name for name in status.column_names if name in _STATUS.names]
    if status.select(names).schema != _STATUS or not status.num_rows:
        raise UserError("the status of a result that fills a history has another form")
    starts, ends = (status[name].cast(pa.int64()).to_pylist() for name in _STATUS.names[:2])
    fit = all(
        start is not None
        and any(start % kind.slide_us == 0 and end == start + kind.size_us for kind in kinds)
        for start, end in zip(starts, ends, strict=True)
    )
    if (
        not fit
        or (min(starts), set(ends)) != (one.first_us, {one.last_us})
        or not all(status["offline"].to_pylist())
    ):
        raise UserError("a result that fills a history says of its windows what is not so")
    columns = ["window_start", "window_end", *plan.outputs]
    if rows.num_rows and rows.column_names != columns:
        raise UserError(f"its rows have the columns {', '.join(rows.column_names)}, not {', '.join(columns)}")
