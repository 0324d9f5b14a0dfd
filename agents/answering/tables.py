"""Procedures about tables of jobs (``agents.answering.asks``): CREATE and DROP TABLE are outputs'
(``agents.answering.outputs``); here are SELECT over a table, ALTER TABLE, SHOW TABLES and DESCRIBE.

A table is read where its job's group is: at the leader, or, with AS OF ANY, at this agent if it is a member;
each of its shards where the group of that is. This agent remembers how far each table, or shard, was that it
has read, and takes no answer from before that (protocol 7.13): who asks it again never sees a key go back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from agents.answering.asks import SILENT, Ask, Procedure, Tell, ToAddress, Until, evaluate, offload
from agents.answering.fleet import Fleet
from agents.answering.masters import Masters
from agents.answering.once import author_of
from agents.answering.past import moment
from agents.answering.shards import Lacks, Part, Told, merged, parts_of, ring_parts
from elf.batch import decode, encode
from elf.client.past import joined
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.effects import TableQuestion
from elf.job.messages.log import AddOutput, PauseRekeying
from elf.job.output import OutputSpec
from elf.job.ring import COPIES, PARTS, has_ring, majority
from elf.job.spec import JobSpec, is_range
from elf.job.tables import (
    BEHIND,
    NO_TABLE,
    ROUND_PAUSE_MS,
    ROUND_ROWS,
    Asked,
    ReadTable,
    TableRows,
    begun,
    column_kinds,
    grouped_by,
    heir_of,
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

BYTES_MAX: Final = 64 << 20
"""Of encoded rows that are gathered for a SELECT over all of a table."""
FEW_BYTES: Final = 1 << 13
"""Rows of a key with no more are put together at once: handing them over takes longer."""
WHOLE_WAITS: Final = 15
"""How often ALTER TABLE looks whether all rows have their new key."""
ROW_US: Final = 9
RECORD_US: Final = 20_000
"""What a row takes that gets another key, and a record with such rows beside these and its pause: measured on
one core (``elf bench tables``)."""
TRIES: Final = 4
"""How often a table is asked for, where its group gets another leader or has only just heard of it."""
_Rows = Generator[list[Ask], list[Answer], list[TableRows]]


class Tables:
    """Of all jobs, as people ask this agent for them. ``here``: its address; ``holds``: whether it is a
    member of a job's group, by the uid of the job."""

    def __init__(
        self, log: CatalogLog, fleet: Fleet, masters: Masters, here: str, holds: Callable[[str], bool]
    ) -> None:
        self._log = log
        self._fleet = fleet
        self._masters = masters
        self._here = here
        self._holds = holds
        self._told = Told()

    def names(self) -> frozenset[str]:
        """What FROM may name that is a table, and no stream."""
        return frozenset({one.name for one in self._log.outputs() if is_table(one)}) - set(
            self._log.streams()
        )

    def find(self, name: str, creator: str) -> OutputSpec:
        """Raises ``UserError``."""
        spec = self._log.find_output(name, creator)
        if spec is not None and is_table(spec):
            return spec
        there = [one for one in self._log.outputs() if is_table(one)]
        if owners := sorted(one.creator for one in there if one.name == name):
            raise UserError(
                f"there are tables {name} of {', '.join(owners)}, none of {creator}: --creator says whose"
            )
        names = ", ".join(sorted({one.name for one in there}))
        raise UserError(f"there is no table {name}; " + (f"tables: {names}" if names else "there are none"))

    # -- rows ------------------------------------------------------------------------------------------------

    def select(self, asked: Execute, statement: TableSelect) -> Procedure:
        spec = self.find(statement.name, asked.creator)
        found = yield from self.gathered(spec, statement.equals, anywhere=statement.anywhere)
        last = merged(found)
        rows = tuple(one.rows for one in found if one.rows)
        if not rows:
            return self._reply(asked, f"table {spec.name} has no rows yet{_as_of(last)}", last, found)
        if statement.columns is not None and _has_all(statement.equals, last):
            made = partial(_plain, rows, statement.columns)
            table = made() if sum(map(len, rows)) <= FEW_BYTES else (yield from offload(made))
            return self._reply(asked, _told(table.num_rows, spec, last), last, found, encode(table))
        answer = yield from evaluate(TableQuestion(statement.select, statement.name, rows))
        for portion in answer.portions[:-1]:
            yield [Tell(Reply(request=asked.request, payload=portion, done=False))]
        payload = answer.portions[-1] if answer.portions else b""
        return self._reply(asked, _told(answer.rows, spec, last), last, found, payload)

    def _reply(
        self, asked: Execute, text: str, one: TableRows, found: Sequence[TableRows], payload: bytes = b""
    ) -> Reply:
        """With how far the table was: the number of the job's results up to which it had all; and each shard
        that was asked. Where that lacks what the table had before its key changed, it says so."""
        newest = None if one.newest_us is None else moment(one.newest_us)
        told: dict[str, object] = {"table": one.kept.table, "number": one.number, "as_of": newest}
        shards = {shard_place(part.kept.table): part.number for part in found if is_shard(part.kept.table)}
        if shards:
            told["shards"] = shards
        if one.number < (complete := self._log.rings.complete_at(one.kept.table)):
            told["recovering"] = True
            text += f"; its key has just changed, and it has {one.number} of {complete} results again"
        return Reply(request=asked.request, text=text, body=msgspec.json.encode(told), payload=payload)

    def lasting(self, app: str, called: str) -> OutputSpec:
        """The table whose uid begins with ``app``, whatever its key is by now. Raises ``UserError``."""
        found = next((one for one in self._log.outputs() if is_table(one) and one.app.hex() == app), None)
        if found is None:
            raise UserError(f"there is no {called} any more: its rows stay as they are")
        return found

    def gathered(self, spec: OutputSpec, equals: tuple[Asked, ...] = (), *, anywhere: bool = True) -> _Rows:
        """The rows of a key, or all, in portions, each of one moment of its own."""
        size = 0
        columns = {name.lower() for name in grouped_by(self._job(spec).plan)}
        equals = tuple(one for one in equals if one[0].lower() in columns)  # no others are of a key

        def portions(part: Part) -> _Rows:
            nonlocal size
            some: list[TableRows] = []
            after, more = b"", True
            while more:
                one = yield from self._read(part, equals, after, anywhere=anywhere)
                if some and one.kept.table != some[0].kept.table:  # another key, and so another order
                    raise Lacks(f"table {spec.name} is found by {', '.join(one.kept.key)} since a moment ago")
                some.append(one)
                after, more, size = one.next, one.more, size + len(one.rows)
                if size > BYTES_MAX:
                    raise UserError(
                        f"the rows of table {spec.name} take more than {BYTES_MAX >> 20} MiB: ask for a key "
                        f"({', '.join(one.kept.key)} = …)"
                    )
            return some

        return (yield from self._each(spec, portions, equals))

    def _each(self, spec: OutputSpec, read: Callable[[Part], _Rows], equals: Sequence[Asked] = ()) -> _Rows:
        """What the table, or each of its shards, is read as; or those of the table whose place it takes,
        until all have all rows. Raises ``UserError``."""
        for tried in range(2 * TRIES):
            found: list[TableRows] = []
            spec = self._newest(spec)
            try:
                for part in self._parts(spec, equals, before=tried % 2 == 1):
                    some = yield from read(part)
                    found += some
            except Lacks:
                if tried == 2 * TRIES - 1:
                    raise
                continue
            if found:
                return found
        raise UserError(f"table {spec.name}: it has not begun yet")

    def _parts(self, spec: OutputSpec, equals: Sequence[Asked] = (), *, before: bool = False) -> list[Part]:
        """What the table is read from: itself, or its shards; of these only those that may have a key."""
        job = self._log.job(spec.job)
        kinds = {} if job is None else column_kinds(job.plan)
        if has_ring(spec):
            return ring_parts(spec, self._log.rings, equals, kinds)
        return parts_of(spec, self._log.homes(spec.uid), equals, kinds, before=before)

    def _read(
        self,
        part: Part,
        equals: tuple[Asked, ...] = (),
        after: bytes = b"",
        *,
        anywhere: bool = False,
        rows: bool = True,
    ) -> Generator[list[Ask], list[Answer], TableRows]:
        """Some rows, of no earlier moment than those that this agent has had before. Raises ``UserError``."""
        if part.replicas:
            return (yield from self._read_ring(part, equals, after, anywhere=anywhere, rows=rows))
        job = self._job(part.spec)
        error, at = "", ""
        for tried in range(TRIES):
            part = self._heir(part)
            near = anywhere and not tried and self._holds(part.group)
            at = self._here if near else self._leader(part, job)
            asked = replace(self._asked(part), equals=equals, after=after, anywhere=near, rows=rows)
            (answer,) = yield [ToAddress(at, asked)]
            error = answer.error
            if not error:
                found = _rows_of(answer)
                if found.number >= self._told.least(part):
                    self._told.take(part, found.number)
                    return found
                error = BEHIND  # somebody has asked meanwhile, and was told of more
                continue
            if error == SILENT or error.startswith("its key"):
                break
            if not near and ((error == NO_TABLE and part.lacks) or self._is_over(part)):
                raise Lacks(self._refused(part.spec, job, at, error))
            if not near and tried < TRIES - 1:
                yield [Until(partial(self._moved, part, job, at))]
        raise UserError(self._refused(part.spec, job, at, error))

    def _read_ring(
        self, part: Part, equals: tuple[Asked, ...], after: bytes, *, anywhere: bool, rows: bool
    ) -> Generator[list[Ask], list[Answer], TableRows]:
        """What the newest of a majority of replicas has, or, ``anywhere``, the first that answers (protocol
        7.19). Raises ``UserError``."""
        wanted = 1 if anywhere else majority(len(part.replicas))
        error = SILENT
        for tried in range(TRIES):
            silent = self._fleet.silent(part.replicas)
            there = sorted(part.replicas, key=lambda at: (at in silent, anywhere and at != self._here))
            asked = replace(self._asked(part), equals=equals, after=after, rows=rows)
            told: list[Answer] = []
            while there and len(told) < wanted:
                some, there = there[: wanted - len(told)], there[wanted - len(told) :]
                answers = yield [ToAddress(at, asked) for at in some]
                told += [one for one in answers if one.error in ("", BEHIND)]  # it has all rows
                error = next((one.error for one in answers if one.error), error)
            found = [_rows_of(one) for one in told if not one.error]
            best = max(found, key=lambda one: one.number, default=None)
            if best is not None and len(told) >= wanted and best.number >= self._told.least(part):
                self._told.take(part, best.number)
                return best
            if error.startswith("its key"):
                break
            if self._newest(part.spec) is not part.spec or part != self._again(part):
                raise Lacks(f"table {part.spec.name}: its key, or its ring, has just changed")
            if tried < TRIES - 1:
                yield [Until(lambda: part != self._again(part))]
        if error.startswith("its key"):
            raise UserError(f"table {part.spec.name}: {error}")
        raise UserError(
            f"table {part.spec.name}: too few of the agents that have copies of it answer, or have all rows"
        )

    def _again(self, part: Part) -> Part:
        """The same part, as the log has it by now."""
        rings = self._log.rings
        uid = part.spec.option("of") if rings.is_changing(part.spec.uid) else part.spec.uid
        place = shard_place(part.uid)
        return replace(part, uid=shard_uid(uid, place), replicas=rings.replicas(place))

    def _leader(self, part: Part, job: JobSpec) -> str:
        if part.replicas:
            silent = self._fleet.silent(part.replicas)
            return min(part.replicas, key=lambda at: at in silent)
        return self._log.leader(part.group) or self._masters.leader(job)

    def _asked(self, part: Part) -> ReadTable:
        """The question for what a table is."""
        least = self._told.least(part)
        return ReadTable(id=0, origin="", uid=part.group, table=part.uid, of=part.of, least=least, rows=False)

    def _refused(self, spec: OutputSpec, job: JobSpec, at: str, error: str) -> str:
        """Why there is no answer of a table, for people."""
        if error in (NO_TABLE, BEHIND) and (said := self._not_yet(spec, job)):
            return f"table {spec.name}: {said}"
        why = error.removeprefix(f"job {job.name} ")
        return f"table {spec.name}: {self._masters.said(at, why, 'the master of its job')}"

    def _job(self, spec: OutputSpec) -> JobSpec:
        job = self._log.job(spec.job)
        if job is None:
            raise UserError(f"table {spec.name} has ended with its job")
        return job

    def _moved(self, part: Part, job: JobSpec, at: str) -> bool:
        return self._leader(part, job) != at or self._heir(part) is not part or self._is_over(part)

    def _is_over(self, part: Part) -> bool:
        """Whether a shard is one of a table whose place another one has taken."""
        return is_shard(part.uid) and self._newest(part.spec) is not part.spec

    def _heir(self, part: Part) -> Part:
        """The table that has taken its place by now, if one has. No shard has taken that of a shard: its keys
        are in others."""
        spec = self._newest(part.spec)
        return part if spec is part.spec or is_shard(part.uid) else Part(spec, spec.job, spec.uid)

    def _newest(self, spec: OutputSpec) -> OutputSpec:
        """The table that has taken the place of another one by now, if one has."""
        if not self._log.is_dropped(spec.uid):
            return spec
        return heir_of(spec.uid, self._log.outputs(spec.job)) or spec

    def _not_yet(self, spec: OutputSpec, job: JobSpec) -> str:
        """Why a table has not begun, where that can be seen."""
        found = begun(spec, job.plan)
        return found if isinstance(found, str) else ""

    # -- another key -----------------------------------------------------------------------------------------

    def alter(self, asked: Execute, statement: AlterTable) -> Procedure:
        """A table of the same name takes its place, with all its rows (``elf.job.tables``)."""
        old = self.find(statement.name, asked.creator)
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
            some = yield from self._now(spec)
            if merged(some).kept.table == spec.uid:
                return Reply(request=asked.request, text=done)
            yield [Until(partial(self._log.is_dropped, spec.uid))]
        return Reply(
            request=asked.request,
            text=f"table {old.name} is found by {key} when all rows have it: SHOW TABLES says when",
        )

    def pause(self, asked: Execute, statement: PauseTable) -> Procedure:
        """No more rows of a table get the key that it is to have, or they do again (protocol 7.18)."""
        spec = self.find(statement.name, asked.creator)
        if spec.creator != asked.creator:
            raise UserError(f"table {spec.name} is {spec.creator}'s, and only {spec.creator} may change it")
        now = merged((yield from self._now(spec)))
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
        old = self.find(statement.name, asked.creator)
        some, homes = (yield from self._now(old)), self._log.homes(old.uid)
        now = merged(some)
        options = dict(old.options) | {"key": ",".join(statement.key), "of": old.uid}
        if has_ring(old):
            options |= {"was": old.option("key")}
        elif homes:
            options |= {"was": old.option("key"), "homes": "".join("01"[is_range(home)] for home in homes)}
        generation = 1 + self._log.highest(old.app.hex())
        new = replace(old, generation=generation, options=tuple(sorted(options.items())))
        if why := self._not_yet(new, self._job(old)):
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
        parts = [(part, self._leader(part, job)) for one, job in there for part in self._parts(one)]
        answers = iter((yield [ToAddress(at, self._asked(part)) for part, at in parts]))
        told = [(part, at, next(answers)) for part, at in parts]
        found: list[dict[str, object]] = []
        for spec, job in there:
            row: dict[str, object] = {"table": spec.name, "creator": spec.creator, "job": job.name}
            row["key"] = spec.option("key").replace(",", ", ")
            row["shards"] = shards_of(spec)
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
        job = self._job(spec)
        parts = [replace(one, uid=shard_uid(spec.uid, shard_place(one.uid))) for one in self._parts(spec)]
        asked = [replace(self._asked(one), least=0) for one in parts]
        pairs = zip(parts, asked, strict=True)
        answers = yield [ToAddress(self._leader(one, job), said) for one, said in pairs]
        return sum(not one.error for one in answers)

    def _shown(
        self, spec: OutputSpec, job: JobSpec, told: Sequence[tuple[Part, str, Answer]]
    ) -> Generator[list[Ask], list[Answer], TableRows]:
        """What a table is, by the first answers of all its parts. Raises ``UserError``."""
        some: list[TableRows] = []
        try:
            for part, at, answer in told:
                one = yield from self._read_again(part, job, at, answer)
                some.append(one)
        except Lacks:
            done = sum(not answer.error for _, _, answer in told)
            before = yield from self._now(spec)
            return replace(merged(before), rounds=done)
        return merged(some)

    def _read_again(
        self, part: Part, job: JobSpec, at: str, answer: Answer
    ) -> Generator[list[Ask], list[Answer], TableRows]:
        """What a table is, by a first answer; that one may be of an agent which has just ceased to lead."""
        if not answer.error:
            found = _rows_of(answer)
            self._told.take(part, found.number)
            return found
        if answer.error == SILENT:
            raise UserError(self._refused(part.spec, job, at, SILENT))
        return (yield from self._read(part, rows=False))

    def describe(
        self, asked: Execute, name: str
    ) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """One of them, for people."""
        spec = self.find(name, asked.creator)
        some = yield from self._now(spec)
        one, job = merged(some), self._log.job(spec.job)
        retain = int(spec.option("retain", "0"))
        schema = decode(one.rows).schema if one.rows else pa.schema([])
        told = {
            "table": spec.name,
            "creator": spec.creator,
            "job": "" if job is None else job.name,
            "key": ", ".join(one.kept.key),
            "a row for each": ", ".join(one.kept.columns),
            "shards": self._shards(spec, some),
            "columns": ", ".join(f"{field.name} {field.type}" for field in schema),
            "retained": f"{retain / 60_000_000:g} minutes" if retain else "for ever",
            "joined by": ", ".join(joined_by(spec, self._log.jobs())) or "no job",
            "leader": "" if job is None else self._fleet.named(self._masters.leader(job)),
            **_facts(one),
        }
        return [{"fact": fact, "value": value} for fact, value in told.items()]

    def _now(self, spec: OutputSpec) -> _Rows:
        """What the table, or each of its shards, is. Raises ``UserError``."""

        def facts(part: Part) -> _Rows:
            one = yield from self._read(part, rows=False)
            return [one]

        return (yield from self._each(spec, facts))

    def _shards(self, spec: OutputSpec, some: Sequence[TableRows]) -> str:
        """Who leads each of them, with its rows."""
        if has_ring(spec):
            names = (", ".join(map(self._fleet.named, one.replicas)) for one in self._parts(spec))
            return "; ".join(f"{place} at {those}" for place, those in enumerate(names))
        parts = zip(self._parts(spec), some, strict=True)
        told = [
            f"{self._fleet.named(self._log.leader(part.group) or '')} ({one.count:,} rows)"
            for part, one in parts
        ]
        return ", ".join(told) if len(told) > 1 else "none"


def _rows_of(answer: Answer) -> TableRows:
    return msgspec.msgpack.decode(answer.body, type=TableRows)


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


def _state(one: TableRows, spec: OutputSpec, job: JobSpec, paused: str) -> str:
    if why_no_table(job.plan) or set(one.kept.columns) != set(grouped_by(job.plan)):
        return "its job's windows do not fit"
    if one.kept.table != spec.uid and one.kept.shards > 1:
        have = f"{one.rounds} of {one.kept.shards} shards have all"
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
