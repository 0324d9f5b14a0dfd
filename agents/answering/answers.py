"""Answers as values, and as what people are shown."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from elf.batch import encode
from elf.errors import ColumnError, UserError
from elf.job import messages as say
from elf.job.log.streamlog import FOREVER_US, Member


def place_of(answer: say.Answer) -> say.TreePlace:
    """What an agent answered to ``LocateInTree``; one that is silent has no place."""
    if answer.error:
        return say.TreePlace("", "")
    return msgspec.msgpack.decode(answer.body, type=say.TreePlace)


def stream_tree(name: str, root: str, members: Sequence[tuple[Member, say.TreePlace]]) -> dict[str, object]:
    """The tree of a stream, in the form of a job's with one flow that nobody reads."""
    edges = [
        {"name": member.name, "address": member.address, "parent": place.parent, "sealed_us": None}
        for member, place in members
    ]
    flow = {"flow": "", "stream": name, "root": root, "readers": [], "edges": edges}
    return {"job": f"stream:{name}", "master": "", "flows": [flow]}


def facts_of(answer: say.Answer) -> say.JobFacts:
    if answer.error:
        raise UserError(answer.error)
    return msgspec.msgpack.decode(answer.body, type=say.JobFacts)


def state_of(member: Member, *, lives: bool) -> str:
    if member.until_us != FOREVER_US:
        return "left"
    return "live" if lives else "away"


def with_way_out(error: ColumnError, views: Mapping[str, say.StreamSeen], *, finite: bool) -> UserError:
    """What is wrong with a column, and where a person declares it, if its streams let them. ``finite``: in
    ``elf run``."""
    able = [stream for stream, view in views.items() if error.type or view.format == "json"]
    if not able:
        return error
    kind = error.type or "TYPE"
    where = (
        f"--column {shlex.quote(f'{error.name}={kind}')}"
        if finite
        else f"columns: {{{error.name}: {kind}}} of stream {able[0]} in the agents' settings"
    )
    return error.with_way_out(f"{'or' if error.type else 'if no sample shows it,'} declare it: {where}")


def table_of(request: int, rows: Sequence[dict[str, object]], what: str) -> say.Reply:
    if not rows:
        return say.Reply(request=request, text=f"no {what}")
    columns = {
        name: [row[name] if isinstance(row[name], int) else str(row[name]) for row in rows]
        for name in rows[0]
    }
    table = pa.table({name: _column(values) for name, values in columns.items()})
    return say.Reply(request=request, payload=encode(table))


def _column(values: Sequence[object]) -> Sequence[object]:
    return values if all(isinstance(v, int) for v in values) else [str(v) for v in values]
