"""Procedures about outputs of jobs (``agents.answering.asks``): CREATE, DROP and SHOW OUTPUT, and ALERT.

Which outputs there are, the catalog log says, and whoever is asked for one proposes it. How far each has got,
its job's master knows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from agents.answering.asks import Ask, Procedure, ToAddress, offload
from agents.answering.fleet import Fleet
from agents.answering.masters import Masters
from agents.answering.once import author_of
from elf.errors import UserError
from elf.job.alerts import follow_on
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import AddOutput, DropJobEntry
from elf.job.output import ALERTED, OUTPUTS_MAX, TABLE, OutputSpec, is_allowed, kind_of, output_app, why_not
from elf.job.ring import has_ring
from elf.job.spec import JobSpec
from elf.job.tables import TABLES_MAX, begun, is_table, joined_by, shards_of
from elf.job.work import AlertWork, InspectWork, OutputWork, WorkStatus
from elf.ql.alert import Alert
from elf.ql.definition import Read
from elf.wire.base import Answer
from elf.wire.clients import Execute, Reply

if TYPE_CHECKING:  # sqlglot, as in agents.answering.statements
    from elf.ql import outputs as ql

NAMED_MAX: Final = 5
"""Agents that an answer names."""


class Outputs:
    """Of all jobs, as people ask this agent for them."""

    def __init__(self, log: CatalogLog, fleet: Fleet, masters: Masters) -> None:
        self._log = log
        self._fleet = fleet
        self._masters = masters

    def create(self, asked: Execute, statement: ql.CreateOutput) -> Procedure:
        job = self._masters.own(statement.job, asked.creator)
        name, options = statement.name, dict(statement.options)
        if why := why_not(statement.target, options):
            raise UserError(f"{_noun(statement)} {name}: {why}")
        if statement.alert is not None:
            yield from offload(partial(_check, name, job, statement.target, statement.alert))
        if kind_of(statement.target) == TABLE:
            self._check_table(statement, job)
        own = [one for one in self._log.outputs() if (one.name, one.creator) == (name, job.creator)]
        if own:
            what = _noun(own[0])
            raise UserError(
                f"{what} {name} exists already; DROP {what.upper()} {name} first, or choose another name"
            )
        if len(self._log.outputs(job.uid)) >= OUTPUTS_MAX:
            raise UserError(
                f"job {job.name} has {OUTPUTS_MAX} outputs and alerts, the most that a job can have"
            )
        note = ""
        if kind_of(statement.target) != TABLE:
            note = yield from self._allowed(f"{_noun(statement)} {name}", statement.target)
        spec = OutputSpec(
            name,
            job.creator,
            1 + self._log.highest(output_app(name, job.creator).hex()),
            job.uid,
            statement.target,
            statement.options,
            statement.from_beginning,
            (yield from offload(partial(author_of, asked, statement))),
            statement.alert,
        )
        yield from self._fleet.have_logged(AddOutput(spec=spec), lambda: self._log.has_output(spec.uid))
        if self._log.output(spec.uid) != spec:
            there = self._log.has_output(spec.uid)
            why = (
                "another one of that name came first" if there else "the voters of the log do not answer yet"
            )
            raise UserError(
                f"{_noun(spec)} {name} is not made: {why}; SHOW {_noun(spec).upper()}S tells which there are"
            )
        if is_table(spec):
            return Reply(
                request=asked.request, text=f"table {name} created, of the last window and all to come"
            )
        since = "everything that is kept" if spec.from_beginning else "what comes from now on"
        return Reply(request=asked.request, text=f"{_noun(spec)} {name} created, of {since}{note}")

    def _check_table(self, statement: ql.CreateOutput, job: JobSpec) -> None:
        """Raises ``UserError`` where a job can have no such table."""
        name = statement.name
        if name in self._log.streams():
            raise UserError(f"table {name}: there is a stream of that name; choose another one")
        if sum(map(is_table, self._log.outputs(job.uid))) >= TABLES_MAX:
            raise UserError(f"job {job.name} has {TABLES_MAX} tables, the most that a job can have")
        spec = OutputSpec(name, job.creator, 0, job.uid, statement.target, statement.options)
        if isinstance(why := begun(spec, job.plan), str):
            raise UserError(f"table {name} of job {job.name}: {why}")
        ranges = max(fragment.range[1] for fragment in job.plan.fragments)
        if shards_of(spec) > ranges and not has_ring(spec):
            raise UserError(
                f"table {name}: its shards are in the groups of the job's key ranges, and job {job.name} has "
                f"{ranges}: ALTER JOB {job.name} with TREES {shards_of(spec)} first, or say fewer SHARDS"
            )

    def _allowed(self, which: str, target: str) -> Generator[list[Ask], list[Answer], str]:
        """What to add where some agents do not let data out to a target. Raises ``UserError`` if none of
        those that answer does."""
        said = yield from self._fleet.each()
        closed = [who for who, stats in said.items() if not is_allowed(target, stats.outputs)]
        if closed and len(closed) == len(said):
            raise UserError(
                f"{which}: no agent lets data out to {target}: outputs.allow in their configuration "
                "names the beginnings of targets that they do"
            )
        more = f" and {len(closed) - NAMED_MAX} more" if len(closed) > NAMED_MAX else ""
        named = ", ".join(sorted(closed)[:NAMED_MAX]) + more
        return f"; where {named} is the job's master it waits (outputs.allow)" if closed else ""

    def drop(self, asked: Execute, statement: ql.DropOutput) -> Procedure:
        spec = self._log.find_output(statement.name, asked.creator)
        noun = "alert" if statement.alert else "table" if statement.table else "output"
        if spec is None:
            alike = [one for one in self._log.outputs() if _noun(one) == noun]
            names = ", ".join(sorted({one.name for one in alike}))
            known = f"{noun}s: {names}" if names else "there are none"
            raise UserError(f"there is no {noun} {statement.name}; {known}")
        if (other := _noun(spec)) != noun:
            a = "a" if other == "table" else "an"
            raise UserError(f"{spec.name} is {a} {other}, and no {noun}: DROP {other.upper()} {spec.name}")
        if spec.creator != asked.creator:
            raise UserError(f"{noun} {spec.name} is {spec.creator}'s, and only {spec.creator} may drop it")
        self._unjoined([spec])
        author = yield from offload(partial(author_of, asked, statement))
        proposal = DropJobEntry(uid=spec.uid, author=author)
        yield from self._fleet.have_logged(proposal, lambda: self._log.is_dropped(spec.uid))
        if not self._log.is_dropped(spec.uid):
            raise UserError(f"{noun} {spec.name} is not dropped: the voters of the log do not answer yet")
        return Reply(request=asked.request, text=f"{noun} {spec.name} dropped")

    def _unjoined(self, tables: Iterable[OutputSpec]) -> None:
        """Raises ``UserError`` where a job joins rows of a table that is to end."""
        for one in filter(is_table, tables):
            if jobs := joined_by(one, self._log.jobs()):
                names, first = ", ".join(jobs), jobs[0]
                raise UserError(
                    f"table {one.name} is joined by {names} (JOIN TABLE): drop what joins it first, or have "
                    f"it join a file (ALTER JOB {first} SET TABLE … FROM 'file')"
                )

    def ending(self, job: JobSpec | None) -> str:
        """What to add to the answer where a job ends, and so its outputs. Raises ``UserError`` where another
        one joins a table of it."""
        self._unjoined(self._log.outputs(job.uid) if job is not None else ())
        names = ", ".join(one.name for one in self._log.outputs(job.uid)) if job is not None else ""
        return f"; its outputs have ended with it: {names}" if names else ""

    # -- what is there ---------------------------------------------------------------------------------------

    def rows(self, *, alerts: bool) -> Generator[list[Ask], list[Answer], list[dict[str, object]]]:
        """All outputs, or all alerts, with how far they have got."""
        work = yield from self._work()
        found: list[dict[str, object]] = []
        for spec in self._log.outputs():
            job = self._log.job(spec.job)
            if job is not None and (spec.alert is not None) == alerts and not is_table(spec):
                row = self._row(spec, job, work.get(spec.uid))
                found.append(row if spec.alert is None else _told_by(spec.alert, row, work.get(spec.uid)))
        return found

    def _row(self, spec: OutputSpec, job: JobSpec, work: OutputWork | None) -> dict[str, object]:
        row: dict[str, object] = {_noun(spec): spec.name, "creator": spec.creator, "job": job.name}
        row["to"] = spec.target
        row["from"] = self._fleet.named(self._masters.leader(job))
        if work is None:
            return {**row, "state": "unknown", "reason": "the job's master does not answer"}
        state = "stopped" if work.error else "behind" if work.waiting else "up to date"
        lost = f"results {work.gap[0]} to {work.gap[1]} were no longer kept" if work.lost else ""
        return {
            **row,
            "state": state,
            "windows": work.windows,
            "waiting": work.waiting,
            "lost": work.lost,
            "reason": "; ".join(filter(None, (work.error, lost))),
        }

    def _work(self) -> Generator[list[Ask], list[Answer], Mapping[str, OutputWork]]:
        jobs: dict[str, list[str]] = {}
        for uid in self._log.with_outputs():
            job = self._log.job(uid)
            if job is not None:
                jobs.setdefault(self._masters.leader(job), []).append(uid)
        silent = self._fleet.silent(jobs)
        answers = yield [
            ToAddress(at, InspectWork(id=0, origin="", flows=(), jobs=tuple(uids)))
            for at, uids in jobs.items()
            if at not in silent
        ]
        told = [msgspec.msgpack.decode(one.body, type=WorkStatus) for one in answers if not one.error]
        return {one.output: one for status in told for job in status.jobs for one in job.outputs}


def _check(name: str, job: JobSpec, target: str, alert: Alert) -> None:
    """Raises ``UserError`` where nothing can come of an alert."""
    from elf.ql.conditions import check_over

    if kind_of(target) not in ALERTED:
        known = ", ".join(f"{kind}:" for kind in sorted(ALERTED))
        raise UserError(f"alert {name}: an alert is told to {known}, not to {kind_of(target)}:")
    if not follow_on(job.plan):
        raise UserError(
            f"alert {name}: an alert is over windows of one kind that follow one another, not over sessions "
            f"or windows of rows, and job {job.name} has others"
        )
    check_over(alert.when, alert.by, job.definition, Read.of(job.uid, job.name, job.plan))


def _noun(one: OutputSpec | ql.CreateOutput) -> str:
    return "alert" if one.alert else "table" if kind_of(one.target) == TABLE else "output"


def _told_by(alert: Alert, row: dict[str, object], work: OutputWork | None) -> dict[str, object]:
    """The row of an alert: its own state, and that of what is told of it."""
    now = AlertWork("unknown")
    if work is not None:
        now = work.alert or AlertWork("quiet", missing=("no window yet",))
    told = {"": "unknown", "up to date": "told"}.get(str(row["state"]), row["state"])
    return {
        **{name: row[name] for name in ("alert", "creator", "job")},
        "when": alert.when,
        "state": now.state,
        "firing": ", ".join(now.firing),
        "missing": ", ".join(now.missing),
        "to": row["to"],
        "notices": row.get("windows"),
        "delivery": told,
        "reason": row["reason"],
    }
