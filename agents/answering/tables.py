"""Procedures about tables of jobs (``agents.answering.asks``): CREATE and DROP TABLE are outputs'
(``agents.answering.outputs``); here are SELECT over a table, ALTER TABLE, SHOW TABLES and DESCRIBE.
How tables are read is in ``agents.answering.tablereads``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from agents.answering.asks import Ask, Procedure, Tell, ToAddress, Until, evaluate, offload
from agents.answering.fleet import Fleet
from agents.answering.masters import Masters
from agents.answering.once import author_of
from agents.answering.past import moment
from agents.answering.shards import Lacks, Part, merged
from agents.answering.tablereads import TableReads
from elf.batch import decode, encode
from elf.client.past import joined
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.effects import TableQuestion
from elf.job.messages.log import AddOutput, PauseRekeying
from elf.job.output import OutputSpec
from elf.job.ring import COPIES, PARTS, has_ring
from elf.job.spec import JobSpec, is_range
from elf.job.tables import (
    ROUND_PAUSE_MS,
    ROUND_ROWS,
    Asked,
    TableRows,
    grouped_by,
    is_shard,
    is_table,
    joined_by,
    shard_place,
    shard_uid,
    shards_of,
    why_no_table,
)
from elf.wire.base import Answer
from elf.wire.clients import Execute, Reply

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql.keyed import AlterTable, PauseTable, TableSelect

FEW_BYTES: Final = 1 << 13
"""Rows of a key with no more are put together at once: handing them over takes longer."""
WHOLE_WAITS: Final = 15
"""How often ALTER TABLE looks whether all rows have their new key."""
ROW_US: Final = 9
RECORD_US: Final = 20_000
"""What a row takes that gets another key, and a record with such rows beside these and its pause: measured on
one core (``elf bench tables``)."""


class Tables:
    """Of all jobs, as people ask this agent for them."""

    def __init__(self, log: CatalogLog, fleet: Fleet, masters: Masters, reads: TableReads) -> None:
        self._log = log
        self._fleet = fleet
        self._masters = masters
        self._reads = reads

    def select(self, asked: Execute, statement: TableSelect) -> Procedure:
        spec = self._reads.find(statement.name, asked.creator)
        found = yield from self._reads.gathered(spec, statement.equals, anywhere=statement.anywhere)
        last = merged(found)
        rows = tuple(one.rows for one in found if one.rows)
        if not rows:
            return self._reply(asked, spec, f"table {spec.name} has no rows yet{_as_of(last)}", last, found)
        if statement.columns is not None and _has_all(statement.equals, last):
            if not statement.columns and len(found) == 1:  # just what the store made
                return self._reply(asked, spec, _told(last.told, spec, last), last, found, rows[0])
            made = partial(_plain, rows, statement.columns)
            table = made() if sum(map(len, rows)) <= FEW_BYTES else (yield from offload(made))
            return self._reply(asked, spec, _told(table.num_rows, spec, last), last, found, encode(table))
        answer = yield from evaluate(TableQuestion(statement.select, statement.name, rows))
        for portion in answer.portions[:-1]:
            yield [Tell(Reply(request=asked.request, payload=portion, done=False))]
        payload = answer.portions[-1] if answer.portions else b""
        return self._reply(asked, spec, _told(answer.rows, spec, last), last, found, payload)

    def _reply(
        self,
        asked: Execute,
        spec: OutputSpec,
        text: str,
        one: TableRows,
        found: Sequence[TableRows],
        payload: bytes = b"",
    ) -> Reply:
        """With how far the table was: the number of the job's results up to which it had all; and each shard,
        or part, that was asked. Where that lacks what the table had before its key changed, it says so."""
        newest = None if one.newest_us is None else moment(one.newest_us)
        told: dict[str, object] = {"table": one.kept.table, "number": one.number, "as_of": newest}
        shards = {shard_place(part.kept.table): part.number for part in found if is_shard(part.kept.table)}
        if shards:
            told[_parts_are(spec)] = shards
        if one.number < (complete := self._log.rings.complete_at(one.kept.table)):
            told["recovering"] = True
            text += f"; its key has just changed, and it has {one.number} of {complete} results again"
        return Reply(request=asked.request, text=text, body=msgspec.json.encode(told), payload=payload)

    # -- another key -----------------------------------------------------------------------------------------

    def alter(self, asked: Execute, statement: AlterTable) -> Procedure:
        """A table of the same name takes its place, with all its rows (``elf.job.tables``)."""
        old = self._reads.find(statement.name, asked.creator)
        if old.creator != asked.creator:
            raise UserError(f"table {old.name} is {old.creator}'s, and only {old.creator} may change it")
        old, now, new = yield from self._altered(asked, statement)
        spec = replace(new, author=(yield from offload(partial(author_of, asked, statement))))
        yield from self._fleet.have_logged(AddOutput(spec=spec), lambda: self._log.has_output(spec.uid))
        if self._log.output(spec.uid) != spec:
            raise UserError(
                f"table {old.name} is not changed: another change came first, or no voter answers"
            )
        key = ", ".join(statement.key)
        done = f"table {old.name} is found by {key} now"
        if now.kept.table != old.uid:
            done = f"table {old.name} is found by {key} as before: the change of its key is taken back"
        for _ in range(WHOLE_WAITS):
            some = yield from self._reads.now(spec)
            if merged(some).kept.table == spec.uid:
                return Reply(request=asked.request, text=done)
            yield [Until(partial(self._log.is_dropped, spec.uid))]
        return Reply(
            request=asked.request,
            text=f"table {old.name} is found by {key} when all rows have it: SHOW TABLES says when",
        )

    def pause(self, asked: Execute, statement: PauseTable) -> Procedure:
        """No more rows of a table get the key that it is to have, or they do again (protocol 7.18)."""
        spec = self._reads.find(statement.name, asked.creator)
        if spec.creator != asked.creator:
            raise UserError(f"table {spec.name} is {spec.creator}'s, and only {spec.creator} may change it")
        now = merged((yield from self._reads.now(spec)))
        there, to = ", ".join(now.kept.key), spec.option("key").replace(",", ", ")
        if now.kept.table == spec.uid:
            raise UserError(f"table {spec.name} is found by {there}: no change of its key is under way")
        paused = statement.paused
        if self._log.is_rekeying_paused(spec.uid) == paused:
            is_so = "is paused already" if paused else "goes on: it is not paused"
            raise UserError(f"table {spec.name}: the change of its key {is_so}")
        author = yield from offload(partial(author_of, asked, statement))
        proposal = PauseRekeying(uid=spec.uid, paused=paused, author=author)

        def seen() -> bool:
            return self._log.is_rekeying_paused(spec.uid) == paused or self._log.is_dropped(spec.uid)

        yield from self._fleet.have_logged(proposal, seen)
        if self._log.is_rekeying_paused(spec.uid) != paused:
            raise UserError(
                f"table {spec.name}: nothing is changed: another change came first, or no voter answers"
            )
        then = f"is paused: it is found by {there}, until RESUME and all rows have {to}"
        return Reply(
            request=asked.request,
            text=f"table {spec.name}: the change of its key {then if paused else 'goes on'}",
        )

    def _altered(
        self, asked: Execute, statement: AlterTable
    ) -> Generator[list[Ask], list[Answer], tuple[OutputSpec, TableRows, OutputSpec]]:
        """A table, what is read of it now, and the table that is to take its place. Raises ``UserError``."""
        old = self._reads.find(statement.name, asked.creator)
        some, homes = (yield from self._reads.now(old)), self._log.homes(old.uid)
        now = merged(some)
        options = dict(old.options) | {"key": ",".join(statement.key), "of": old.uid}
        if has_ring(old):
            options |= {"was": old.option("key")}
        elif homes:
            options |= {"was": old.option("key"), "homes": "".join("01"[is_range(home)] for home in homes)}
        generation = 1 + self._log.highest(old.app.hex())
        new = replace(old, generation=generation, options=tuple(sorted(options.items())))
        if why := self._reads.not_yet(new, self._reads.job(old)):
            raise UserError(f"table {old.name}: {why}")
        there, same = ", ".join(now.kept.key), tuple(statement.key) == now.kept.key
        if now.kept.table == old.uid and same:
            raise UserError(f"table {old.name} is found by {there} already")
        apart = shards_of(old) > 1
        if now.kept.table != old.uid and (apart or not same):
            back = "" if apart else f", and ALTER TABLE {old.name} SET KEY ({there}) takes it back"
            raise UserError(
                f"table {old.name}: its key is being changed; SHOW TABLES says how far that is{back}"
            )
        return old, now, new

    def explain(
        self, asked: Execute, statement: AlterTable
    ) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """What another key would take."""
        old, now, _ = yield from self._altered(asked, statement)
        rounds = now.count // ROUND_ROWS + now.kept.shards
        back = now.kept.table != old.uid
        secs = 0.0 if back else now.count * ROW_US / 1e6 + rounds * (RECORD_US + 1_000 * ROUND_PAUSE_MS) / 1e6
        told = {
            "table": old.name,
            "key": f"{', '.join(now.kept.key)} now, then {', '.join(statement.key)}",
            "rows": f"{now.count:,} of {now.size:,} bytes",
            **_moved(now, rounds, back=back, ring=has_ring(old)),
            "time": f"{secs:.1f} s or so; windows wait for {ROUND_ROWS * ROW_US / 1e3:.0f} ms at a time",
            "meanwhile": f"it is found by {', '.join(now.kept.key)}; SHOW TABLES says how far it is",
        }
        return [{"fact": fact, "value": value} for fact, value in told.items()]

    # -- what is there ---------------------------------------------------------------------------------------

    def rows(self) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """All tables, with what they have. All masters are asked at once: some may be silent."""
        tables = [one for one in self._log.outputs() if is_table(one)]
        there = [(one, job) for one in tables if (job := self._log.job(one.job)) is not None]
        parts = [
            (part, self._reads.leader(part, job)) for one, job in there for part in self._reads.parts(one)
        ]
        answers = iter((yield [ToAddress(at, self._reads.asked(part)) for part, at in parts]))
        told = [(part, at, next(answers)) for part, at in parts]
        found: list[dict[str, object]] = []
        for spec, job in there:
            row: dict[str, object] = {"table": spec.name, "creator": spec.creator, "job": job.name}
            row["key"] = spec.option("key").replace(",", ", ")
            row |= {"shards": 0, "parts": 0, _parts_are(spec): shards_of(spec)}
            try:
                of_it = [one for one in told if one[0].spec is spec]
                now = yield from self._shown(spec, job, of_it)
                paused = "; paused" if self._log.is_rekeying_paused(spec.uid) else ""
                if has_ring(spec) and now.kept.table != spec.uid:
                    now = replace(now, rounds=(yield from self._whole(spec)))
                found.append(row | _facts(now) | {"state": _state(now, spec, job, paused)})
            except UserError as error:
                none = dict.fromkeys(("rows", "bytes", "evicted", "unfit"), 0)
                found.append(row | none | {"as_of": "", "state": str(error)})
        return found

    def _whole(self, spec: OutputSpec) -> Generator[list[Ask], list[Answer], int]:
        """How many parts of a table with a ring have all rows by its new key: at one of their replicas."""
        job = self._reads.job(spec)
        parts = [
            replace(one, uid=shard_uid(spec.uid, shard_place(one.uid))) for one in self._reads.parts(spec)
        ]
        asked = [replace(self._reads.asked(one), least=0) for one in parts]
        pairs = zip(parts, asked, strict=True)
        answers = yield [ToAddress(self._reads.leader(one, job), said) for one, said in pairs]
        return sum(not one.error for one in answers)

    def _shown(
        self, spec: OutputSpec, job: JobSpec, told: Sequence[tuple[Part, str, Answer]]
    ) -> Generator[list[Ask], list[Answer], TableRows]:
        """What a table is, by the first answers of all its parts. Raises ``UserError``."""
        some: list[TableRows] = []
        try:
            for part, at, answer in told:
                one = yield from self._reads.read_again(part, job, at, answer)
                some.append(one)
        except Lacks:
            done = sum(not answer.error for _, _, answer in told)
            before = yield from self._reads.now(spec)
            return replace(merged(before), rounds=done)
        return merged(some)

    def describe(
        self, asked: Execute, name: str
    ) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """One of them, for people."""
        spec = self._reads.find(name, asked.creator)
        some = yield from self._reads.now(spec)
        one, job = merged(some), self._log.job(spec.job)
        retain = int(spec.option("retain", "0"))
        schema = decode(one.rows).schema if one.rows else pa.schema([])
        told = {
            "table": spec.name,
            "creator": spec.creator,
            "job": "" if job is None else job.name,
            "key": ", ".join(one.kept.key),
            "a row for each": ", ".join(one.kept.columns),
            _parts_are(spec): self._shards(spec, some),
            "columns": ", ".join(f"{field.name} {field.type}" for field in schema),
            "retained": f"{retain / 60_000_000:g} minutes" if retain else "for ever",
            "joined by": ", ".join(joined_by(spec, self._log.jobs())) or "no job",
            "leader": "" if job is None else self._fleet.named(self._masters.leader(job)),
            **_facts(one),
        }
        return [{"fact": fact, "value": value} for fact, value in told.items()]

    def _shards(self, spec: OutputSpec, some: Sequence[TableRows]) -> str:
        """Who leads each of them, with its rows."""
        if has_ring(spec):
            names = (", ".join(map(self._fleet.named, one.replicas)) for one in self._reads.parts(spec))
            return "; ".join(f"{place} at {those}" for place, those in enumerate(names))
        parts = zip(self._reads.parts(spec), some, strict=True)
        told = [
            f"{self._fleet.named(self._log.leader(part.group) or '')} ({one.count:,} rows)"
            for part, one in parts
        ]
        return ", ".join(told) if len(told) > 1 else "none"


def _moved(now: TableRows, rounds: int, *, back: bool, ring: bool) -> dict[str, str]:
    """How rows get their new key, and what of them goes from agent to agent."""
    shards = now.kept.shards
    if ring:
        moved = now.size * COPIES * (PARTS - 1) // PARTS
        return {
            "plan": f"each of {COPIES} replicas of {PARTS} parts asks the replica of its number of all parts "
            f"for the rows that are to be its own, {ROUND_ROWS:,} at a time; then results are held for as "
            "long as an entry of the log takes",
            "bytes between agents": f"{moved:,} or so of rows, less what has its new place at the same agent",
            "at least": f"{moved:,} or so, as the hash of its key says where a row is",
        }
    if shards > 1:
        moved = now.size * (shards - 1) // shards
        return {
            "plan": f"each of {shards} shards asks all {shards} for the rows that are to be its own, "
            f"{ROUND_ROWS:,} at a time",
            "bytes between agents": f"{moved:,} of rows to leaders of other shards, and on to their members",
            "at least": f"{moved:,}, as the hash of its key says where a row is",
        }
    records = f"{rounds} records of the group of its job, each gives {ROUND_ROWS:,} rows their new key"
    return {
        "plan": "the change under way is taken back, in one record" if back else records,
        "bytes between agents": "0 of rows: each agent that keeps the job has all of them",
        "at least": "0, wherever rows are placed",
    }


def _parts_are(spec: OutputSpec) -> str:
    """What those are called into which a table is divided."""
    return "parts" if has_ring(spec) else "shards"


def _state(one: TableRows, spec: OutputSpec, job: JobSpec, paused: str) -> str:
    if why_no_table(job.plan) or set(one.kept.columns) != set(grouped_by(job.plan)):
        return "its job's windows do not fit"
    if one.kept.table != spec.uid and one.kept.shards > 1:
        have = f"{one.rounds} of {one.kept.shards} {_parts_are(spec)} have all"
        return f"found by {', '.join(one.kept.key)} until all rows have the new key: {have}{paused}"
    if one.kept.table != spec.uid:
        done = min(one.rounds * ROUND_ROWS, one.count)
        return f"found by {', '.join(one.kept.key)} until all rows have the new key: {done:,} have{paused}"
    return "up to date" if one.number else "no window yet"


def _facts(one: TableRows) -> dict[str, object]:
    return {
        "rows": one.count,
        "bytes": one.size,
        "evicted": one.evicted,
        "unfit": one.unfit,
        "as_of": moment(one.newest_us) if one.newest_us is not None else "",
    }


def _has_all(equals: Sequence[Asked], one: TableRows) -> bool:
    """Whether the rows that came are just those that are asked for."""
    asked = {name.lower() for name, _ in equals}
    return not asked or (one.found and asked == {name.lower() for name in one.kept.key})


def _plain(rows: Sequence[bytes], columns: tuple[tuple[str, str], ...]) -> pa.Table:
    """Raises ``UserError`` for a column that the table does not have."""
    table = joined([decode(one) for one in rows])
    if not columns:
        return table
    known = {name.lower(): name for name in table.column_names}
    if missing := [name for name, _ in columns if name.lower() not in known]:
        raise UserError(f"the table has no column {missing[0]}; columns: {', '.join(table.column_names)}")
    return pa.table(
        [table[known[name.lower()]] for name, _ in columns], names=[shown for _, shown in columns]
    )


def _as_of(one: TableRows) -> str:
    return "" if one.newest_us is None else f", as of the windows that ended by {moment(one.newest_us)}"


def _told(rows: int, spec: OutputSpec, one: TableRows) -> str:
    """What the rows are of, for people."""
    text = f"{rows:,} {'row' if rows == 1 else 'rows'} of table {spec.name}{_as_of(one)}"
    if not one.found and one.count > 1:
        text += f"; all {one.count:,} rows were read: WHERE {' = … AND '.join(one.kept.key)} = … reads a few"
    return text
