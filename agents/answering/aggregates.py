"""Procedures about aggregates of people's own (``agents.answering.asks``): CREATE, DROP and SHOW AGGREGATES.

Which there are, the catalog log says, and whoever is asked for one proposes it. A job has the text of those
that it calls in its own definition (``elf.ql.definition``), so it goes on as it is when another takes the
place of one; and each agent tries the laws on its own last lines before it answers for the job.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from agents.answering.asks import Ask, Procedure, attempt, offload
from agents.answering.files import sent
from agents.answering.fleet import Fleet
from agents.answering.looking import look
from agents.answering.once import author_of
from agents.answering.quotas import Creators
from elf.batch import ARROW_TYPES, NO_CAST, decode, encode
from elf.errors import UserError
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import AddAggregate, DropJobEntry
from elf.job.own import AGGREGATES_MAX, OwnSpec, own_app
from elf.job.program.spec import TEXT_BYTES_MAX
from elf.job.spec import JobSpec
from elf.paos.texts import signature_of
from elf.ql.own import OwnAggregate
from elf.ql.templates import name as quoted
from elf.schema import Column, ColumnType
from elf.security.authored import digest
from elf.security.principals import Principal
from elf.wire.base import Answer
from elf.wire.clients import ONE_SHOT_PREFIX, Execute, Reply

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql import aggregates as ql

STREAMS_MAX: Final = 4
"""Of whose rows the laws are tried."""
ROWS_MAX: Final = 200
"""Of each."""


class Aggregates:
    """As people ask this agent for them."""

    def __init__(self, log: CatalogLog, fleet: Fleet, creators: Creators) -> None:
        self._log = log
        self._fleet = fleet
        self._creators = creators

    def create(
        self, asked: Execute, statement: ql.CreateAggregate, who: Principal | None, *, finite: bool
    ) -> Procedure:
        """``finite``: in ``elf run``, where no agent has read a row yet."""
        name, (text, filename) = statement.name, _sent(asked, statement)
        signature = yield from offload(partial(signature_of, text, filename))
        before = [one for one in self._log.aggregates() if one.app == own_app(name, asked.creator)]
        if before and not statement.replace:
            raise UserError(
                f"aggregate {name} exists already: CREATE OR REPLACE AGGREGATE {name}, or choose another name"
            )
        mine = [one for one in self._log.aggregates() if one.creator == asked.creator]
        if len(mine) >= AGGREGATES_MAX and not before:
            raise UserError(
                f"{asked.creator} has {AGGREGATES_MAX} aggregates, the most that one creator can have"
            )
        if not finite:
            yield from self._fleet.refuse_code("an aggregate")
        self._creators.text(asked.creator, lambda: len(text.encode()))
        shown = not finite and (who is None or who.may("tap"))  # what breaks a law is told with its rows
        streams = self._log.streams()[:STREAMS_MAX] if shown else ()
        tried = yield from self._tried(asked, OwnAggregate(name, text, filename), streams)
        spec = OwnSpec(
            name,
            asked.creator,
            1 + self._log.highest(own_app(name, asked.creator).hex()),
            text,
            filename,
            digest(text),
            (yield from offload(partial(author_of, asked, statement))),
        )
        yield from self._fleet.have_logged(AddAggregate(spec=spec), lambda: self._log.has_aggregate(spec.uid))
        if self._log.aggregate(spec.uid) != spec:
            raise UserError(
                f"aggregate {name} is not made: the voters of the log do not answer yet, or took "
                "another one; SHOW AGGREGATES tells which there are"
            )
        takes = ", ".join(signature.arguments)
        done = "replaced" if before else "created"
        said = f"aggregate {name} {done}: {name}({takes}) gives {signature.returns}"
        running = _users(self._log, before)
        more = f"; jobs that run keep the one before: {', '.join(running)}" if running else ""
        return Reply(request=asked.request, text=f"{said}; its laws hold on {tried}{more}")

    def drop(self, asked: Execute, statement: ql.DropAggregate) -> Procedure:
        name, spec = statement.name, self._log.find_aggregate(statement.name, asked.creator)
        if spec is None:
            names = ", ".join(sorted({one.name for one in self._log.aggregates()}))
            raise UserError(f"there is no aggregate {name}; aggregates: {names or 'none'}")
        if spec.creator != asked.creator:
            raise UserError(f"aggregate {name} is {spec.creator}'s, and only {spec.creator} may drop it")
        if users := _users(self._log, [spec]):
            raise UserError(f"aggregate {name} is used by {', '.join(users)}: drop or alter that first")
        author = yield from offload(partial(author_of, asked, statement))
        proposal = DropJobEntry(uid=spec.uid, author=author, name=spec.name, creator=spec.creator)
        yield from self._fleet.have_logged(proposal, lambda: self._log.is_dropped(spec.uid))
        if not self._log.is_dropped(spec.uid):
            raise UserError(f"aggregate {name} is not dropped: the voters of the log do not answer yet")
        return Reply(request=asked.request, text=f"aggregate {name} dropped")

    def rows(self) -> list[dict[str, object]]:
        """All of them."""
        return [
            {
                "aggregate": one.name,
                "creator": one.creator,
                "takes": ", ".join(one.signature.arguments),
                "gives": one.signature.returns,
                "class": f"{one.signature.title} of {one.filename} ({one.own.hash})",
                "used by": ", ".join(_users(self._log, [one])),
            }
            for one in sorted(self._log.aggregates(), key=lambda one: (one.name, one.creator))
        ]

    def _tried(
        self, asked: Execute, own: OwnAggregate, streams: Iterable[str]
    ) -> Generator[list[Ask], list[Answer], str]:
        """Try the laws, on drawn rows and on some of these streams; says on which. Raises ``UserError`` for
        one that is broken."""
        samples = {"": pa.table({})}
        for stream in streams:
            samples |= yield from self._sample(asked, own, stream)
        for stream, rows in samples.items():
            broken = yield from attempt(own, encode(rows))
            if broken:
                of = f" (rows of stream {stream})" if stream else ""
                raise UserError(f"{own.filename}: {broken}{of}")
        counts = [f"{rows.num_rows} rows of {stream}" for stream, rows in samples.items() if stream]
        return " and ".join(["drawn rows", *counts])

    def _sample(
        self, asked: Execute, own: OwnAggregate, stream: str
    ) -> Generator[list[Ask], list[Answer], dict[str, pa.Table]]:
        """Rows of columns of the stream that it takes; none where there are no such columns, or no rows."""
        from elf.ql.statements import parse_query

        kinds = own.signature.arguments
        try:
            columns = _fitting((yield from self._fleet.view(stream)).schema.columns, kinds)
            items = ", ".join(f"{quoted(name, 'duckdb')} AS x{place}" for place, name in enumerate(columns))
            sql = f"SELECT {items} FROM {quoted(stream, 'duckdb')} LIMIT {ROWS_MAX}"
            query = yield from offload(partial(parse_query, sql))
            if not columns or query is None:
                return {}
            found = yield from look(asked, query, self._log, self._fleet)
        except UserError:  # no line has shown its columns yet, or a name is no name in a query
            return {}
        payload = found.payload if isinstance(found, Reply) else b""
        rows = _typed(decode(payload), kinds) if payload else pa.table({})
        return {stream: rows} if rows.num_rows else {}


def _sent(asked: Execute, statement: ql.CreateAggregate) -> tuple[str, str]:
    """(Its text, the name of its file.)"""
    text, filename = sent(asked, statement.file)
    if not 1 <= (size := len(text.encode())) <= TEXT_BYTES_MAX:
        raise UserError(f"{statement.file} has {size} bytes; from 1 to {TEXT_BYTES_MAX} can be sent")
    return text, filename


def _users(log: CatalogLog, some: Iterable[OwnSpec]) -> list[str]:
    """The jobs that call one of these, in any version that runs."""
    owns = {one.own for one in some}
    jobs: Mapping[str, JobSpec] = {spec.uid: spec for spec in log.jobs()}
    using = [
        spec.name
        for uid, spec in jobs.items()
        if any(own in owns for version in log.versions(uid) for own in version.definition.owns)
    ]
    return sorted("a SELECT" if name.startswith(ONE_SHOT_PREFIX) else f"job {name}" for name in using)


def _fitting(columns: Iterable[Column], kinds: Iterable[ColumnType]) -> list[str]:
    """A column for each of these types; none: there are no such ones."""
    found = []
    for kind in kinds:
        fits = [one.name for one in columns if one.type == kind or (kind, one.type) == ("double", "bigint")]
        others = [name for name in fits if name not in found]
        if not fits:
            return []
        found.append((others or fits)[0])
    return found


def _typed(rows: pa.Table, kinds: Iterable[ColumnType]) -> pa.Table:
    """Without NULLs, in the types of the arguments."""
    try:
        schema = pa.schema([(f"x{place}", ARROW_TYPES[kind]) for place, kind in enumerate(kinds)])
        return rows.select(schema.names).cast(schema).drop_null()
    except NO_CAST:
        return pa.table({})
