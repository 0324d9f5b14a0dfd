"""Windows that a job group keeps, as a table: SELECT … FROM JOB name WINDOWS, and the portions of them that
``elf offline export`` writes to a file.

The job group hands out committed results in portions; whoever is asked gathers them, as many as it may hold,
and evaluates the SELECT beside its loop (``agents.committing.past``). An export is gathered by the client.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from typing import Final

import msgspec

from agents.answering.asks import Ask, Procedure, Tell, evaluate
from agents.answering.masters import Masters
from elf.errors import UserError
from elf.job.effects import PastAnswer, PastQuestion
from elf.job.messages.groups import PastWindows, ReadPast
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec
from elf.ql.past import PastSelect
from elf.wire.base import Answer
from elf.wire.clients import Call, Execute, PastOptions, Reply, WindowResult

_EPOCH: Final = dt.datetime(1970, 1, 1)
BYTES_MAX: Final = 64 << 20
"""Of encoded windows that are gathered for a SELECT."""


class Past:
    """The procedures of one agent."""

    def __init__(self, masters: Masters) -> None:
        self._masters = masters

    def select(self, asked: Execute, statement: PastSelect, now_ms: int) -> Procedure:
        """The rows come in portions; the reply's text says which windows they are of."""
        spec = self._masters.find(statement.job, asked.creator)
        since, until = _bounds(*statement.span(now_ms * 1000))
        results, first_us = yield from self._gathered(spec, since, until)
        answer = yield from evaluate(
            PastQuestion(statement.select, statement.job, results, since, until, statement.all_revisions)
        )
        for portion in answer.portions[:-1]:
            yield [Tell(Reply(request=asked.request, payload=portion, done=False))]
        text = _told(spec.name, answer, since, first_us)
        last = answer.portions[-1] if answer.portions else b""
        return Reply(request=asked.request, text=text, payload=last)

    def portion(self, call: Call, now_ms: int) -> Procedure:
        """Some committed results, for a client that wants them all: the reply's payload is ``PastWindows``,
        its body says between which moments windows are to start."""
        try:
            options = msgspec.json.decode(call.argument, type=PastOptions)
        except msgspec.MsgspecError as error:
            raise UserError(f"past windows cannot be read: {error}") from None
        spec = self._masters.find(options.job, call.creator)
        said = PastSelect("", options.job, "", options.since, options.until)
        since, until = _bounds(*said.span(now_ms * 1000))
        found = yield from self._some(spec, since, until, options.after, rows=options.rows)
        body = msgspec.json.encode((since, until))
        return Reply(request=call.request, body=body, payload=msgspec.msgpack.encode(found))

    def _gathered(
        self, spec: JobSpec, since: int, until: int
    ) -> Generator[list[Ask], list[Answer], tuple[tuple[WindowResult, ...], int | None]]:
        """Every committed result that may have such windows, and after when windows are kept."""
        found: list[WindowResult] = []
        size, after = 0, 0
        while True:
            some = yield from self._some(spec, since, until, after)
            found += [one.result for one in some.windows]
            size += sum(len(one.result.payload) + len(one.result.status) for one in some.windows)
            if size > BYTES_MAX:
                raise UserError(
                    f"the windows of job {spec.name} take more than {BYTES_MAX >> 20} MiB: choose a shorter "
                    f"time with SINCE and UNTIL, or elf offline export {spec.name} writes them to a file"
                )
            if not some.more or not some.windows:
                return tuple(found), some.first_us
            after = found[-1].number

    def _some(
        self, spec: JobSpec, since: int, until: int, after: int, *, rows: bool = True
    ) -> Generator[list[Ask], list[Answer], PastWindows]:
        """A result is named by when its windows end, and may begin long before."""
        sizes = [getattr(kind, "size_us", None) for kind in spec.plan.windows]
        longest = max((size for size in sizes if size is not None), default=0)
        to_us = END_OF_TIME if None in sizes or not sizes else min(END_OF_TIME, until + longest)
        request = ReadPast(id=0, origin="", uid=spec.uid, from_us=since, to_us=to_us, after=after, rows=rows)
        answer = yield from self._masters.ask(spec, request)
        return msgspec.msgpack.decode(answer.body, type=PastWindows)


def _bounds(since: int | None, until: int | None) -> tuple[int, int]:
    """Raises ``UserError`` where there is no time between them."""
    bounds = START_OF_TIME if since is None else since, END_OF_TIME if until is None else until
    if bounds[0] >= bounds[1]:
        raise UserError(
            f"there is no time between SINCE ({moment(bounds[0])}) and UNTIL ({moment(bounds[1])})"
        )
    return bounds


def moment(us: int) -> str:
    """A moment, for people."""
    try:
        return f"{(_EPOCH + dt.timedelta(microseconds=us)).isoformat()}Z"
    except OverflowError:
        return "the end of time" if us > 0 else "the beginning"


def _told(job: str, answer: PastAnswer, since: int, first_us: int | None) -> str:
    """What the rows are of, for people."""
    if not answer.windows:
        kept = "none is kept" if first_us is None else f"those that end after {moment(first_us)} are kept"
        return f"no window of job {job} starts in that time; {kept}"
    row, window = ("row" if answer.rows == 1 else "rows"), ("window" if answer.windows == 1 else "windows")
    text = f"{answer.rows:,} {row} of {answer.windows:,} {window} of job {job}"
    if answer.empty:
        text += f"; {answer.empty:,} windows have no rows"
    if first_us is not None and START_OF_TIME < since < first_us:
        text += f"; windows that ended before {moment(first_us)} are not kept"
    return text
