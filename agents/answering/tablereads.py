"""Which tables of jobs there are, and what rows they have (``agents.answering.asks``).

A table is read where its job's group is: at the leader, or, with AS OF ANY, at this agent if it is a member;
each of its shards where the group of that is; each part of one with a ring at a majority of its replicas.
This agent remembers how far each table, shard or part was that it has read, and takes no answer from before
that (protocol 7.13): who asks it again never sees a key go back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final

import msgspec

from agents.answering.asks import SILENT, Ask, ToAddress, Until
from agents.answering.fleet import Fleet
from agents.answering.masters import Masters
from agents.answering.shards import Lacks, Part, Told, parts_of, ring_parts
from elf.errors import UserError
from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.output import OutputSpec
from elf.job.ring import has_ring, majority
from elf.job.spec import JobSpec
from elf.job.tables import (
    BEHIND,
    NO_TABLE,
    Asked,
    ReadTable,
    TableRows,
    begun,
    column_kinds,
    grouped_by,
    heir_of,
    is_shard,
    is_table,
    shard_place,
    shard_uid,
)
from elf.wire.base import Answer

BYTES_MAX: Final = 64 << 20
"""Of encoded rows that are gathered for a SELECT over all of a table."""
TRIES: Final = 4
"""How often a table is asked for, where its group gets another leader or has only just heard of it."""
_Rows = Generator[list[Ask], list[Answer], list[TableRows]]


class TableReads:
    """Of all jobs, as this agent reads them. ``here``: its address; ``holds``: whether it is a member of a
    job's group, by the uid of the job."""

    def __init__(
        self, log: CatalogLog, fleet: Fleet, masters: Masters, here: str, holds: Callable[[str], bool]
    ) -> None:
        self._log = log
        self._fleet = fleet
        self._masters = masters
        self._here = here
        self._holds = holds
        self._told = Told()
        self._named: tuple[int, frozenset[str]] = (-1, frozenset())
        """Of tables, as the log has them up to an entry."""

    def names(self) -> frozenset[str]:
        """What FROM may name that is a table, and no stream."""
        if self._named[0] != self._log.last:
            there = frozenset({one.name for one in self._log.outputs() if is_table(one)})
            self._named = self._log.last, there - set(self._log.streams())
        return self._named[1]

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

    def lasting(self, app: str, called: str) -> OutputSpec:
        """The table whose uid begins with ``app``, whatever its key is by now. Raises ``UserError``."""
        found = next((one for one in self._log.outputs() if is_table(one) and one.app.hex() == app), None)
        if found is None:
            raise UserError(f"there is no {called} any more: its rows stay as they are")
        return found

    def gathered(self, spec: OutputSpec, equals: tuple[Asked, ...] = (), *, anywhere: bool = True) -> _Rows:
        """The rows of a key, or all, in portions, each of one moment of its own."""
        size = 0
        columns = {name.lower() for name in grouped_by(self.job(spec).plan)}
        equals = tuple(one for one in equals if one[0].lower() in columns)  # no others are of a key

        def portions(part: Part) -> _Rows:
            nonlocal size
            some: list[TableRows] = []
            after, more = b"", True
            while more:
                one = yield from self.read(part, equals, after, anywhere=anywhere)
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

    def now(self, spec: OutputSpec) -> _Rows:
        """What the table, or each of its shards, is. Raises ``UserError``."""

        def facts(part: Part) -> _Rows:
            one = yield from self.read(part, rows=False)
            return [one]

        return (yield from self._each(spec, facts))

    def _each(self, spec: OutputSpec, read: Callable[[Part], _Rows], equals: Sequence[Asked] = ()) -> _Rows:
        """What the table, or each of its shards, is read as; or those of the table whose place it takes,
        until all have all rows. Raises ``UserError``."""
        for tried in range(2 * TRIES):
            found: list[TableRows] = []
            spec = self._newest(spec)
            try:
                for part in self.parts(spec, equals, before=tried % 2 == 1):
                    some = yield from read(part)
                    found += some
            except Lacks:
                if tried == 2 * TRIES - 1:
                    raise
                continue
            if found:
                return found
        raise UserError(f"table {spec.name}: it has not begun yet")

    def parts(self, spec: OutputSpec, equals: Sequence[Asked] = (), *, before: bool = False) -> list[Part]:
        """What the table is read from: itself, or its shards; of these only those that may have a key."""
        job, homes, ring = self._log.job(spec.job), self._log.homes(spec.uid), has_ring(spec)
        kinds = column_kinds(job.plan) if job is not None and (ring or homes) else {}
        if ring:
            return ring_parts(spec, self._log.rings, equals, kinds)
        return parts_of(spec, homes, equals, kinds, before=before)

    def read(
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
        job = self.job(part.spec)
        error, at = "", ""
        for tried in range(TRIES):
            part = self._heir(part)
            near = anywhere and not tried and self._holds(part.group)
            at = self._here if near else self.leader(part, job)
            asked = replace(self.asked(part), equals=equals, after=after, anywhere=near, rows=rows)
            (answer,) = yield [ToAddress(at, asked)]
            error = answer.error
            if not error:
                found = rows_of(answer)
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

    def read_again(
        self, part: Part, job: JobSpec, at: str, answer: Answer
    ) -> Generator[list[Ask], list[Answer], TableRows]:
        """What a table is, by a first answer; that one may be of an agent which has just ceased to lead."""
        if not answer.error:
            found = rows_of(answer)
            self._told.take(part, found.number)
            return found
        if answer.error == SILENT:
            raise UserError(self._refused(part.spec, job, at, SILENT))
        return (yield from self.read(part, rows=False))

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
            asked = replace(self.asked(part), equals=equals, after=after, rows=rows)
            told: list[Answer] = []
            while there and len(told) < wanted:
                some, there = there[: wanted - len(told)], there[wanted - len(told) :]
                answers = yield [ToAddress(at, asked) for at in some]
                told += [one for one in answers if one.error in ("", BEHIND)]  # it has all rows
                error = next((one.error for one in answers if one.error), error)
            found = [rows_of(one) for one in told if not one.error]
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

    def leader(self, part: Part, job: JobSpec) -> str:
        if part.replicas:
            silent = self._fleet.silent(part.replicas)
            return min(part.replicas, key=lambda at: at in silent)
        return self._log.leader(part.group) or self._masters.leader(job)

    def asked(self, part: Part) -> ReadTable:
        """The question for what a table is."""
        least = self._told.least(part)
        return ReadTable(id=0, origin="", uid=part.group, table=part.uid, of=part.of, least=least, rows=False)

    def _refused(self, spec: OutputSpec, job: JobSpec, at: str, error: str) -> str:
        """Why there is no answer of a table, for people."""
        if error in (NO_TABLE, BEHIND) and (said := self.not_yet(spec, job)):
            return f"table {spec.name}: {said}"
        why = error.removeprefix(f"job {job.name} ")
        return f"table {spec.name}: {self._masters.said(at, why, 'the master of its job')}"

    def job(self, spec: OutputSpec) -> JobSpec:
        job = self._log.job(spec.job)
        if job is None:
            raise UserError(f"table {spec.name} has ended with its job")
        return job

    def _moved(self, part: Part, job: JobSpec, at: str) -> bool:
        return self.leader(part, job) != at or self._heir(part) is not part or self._is_over(part)

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

    def not_yet(self, spec: OutputSpec, job: JobSpec) -> str:
        """Why a table has not begun, where that can be seen."""
        found = begun(spec, job.plan)
        return found if isinstance(found, str) else ""


def rows_of(answer: Answer) -> TableRows:
    return msgspec.msgpack.decode(answer.body, type=TableRows)
