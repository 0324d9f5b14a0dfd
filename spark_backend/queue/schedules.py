"""Runs that are submitted at times that a cron expression says.

Rules: a schedule has the next moment at which it submits a run, and moves it on in the transaction that
submits the run, so a moment is never served twice, whatever is killed when. Of the moments that have passed
when the daemon looks, the last one is served, unless it is older than the schedule's ``late_ms``, or the run
before it is not over; all others are *missed*, and each is named with the reason. What the run is to answer
is told from the moment, not from when it was served: ``--from yesterday`` is the day before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from elf.errors import ElfError, UserError
from elf.schema import ColumnType
from spark_backend.queue.store import Check, Run, Spec, Store

if TYPE_CHECKING:
    from spark_backend.queue.cron import Cron

MISSED_MAX: Final = 100
"""Moments of a schedule that are remembered by name; all are counted."""
KEPT_MAX: Final = 100
"""Runs of a schedule that are over and stay in the list."""
SCHEDULES_MAX: Final = 1_000


class Asked(msgspec.Struct, frozen=True):
    """What is asked for on a command line; at each moment it makes a ``Spec``.

    Attributes:
        text (str): the query; empty for a check.
        archives (tuple[str, ...]): their paths or URIs.
        begin (str | None): ``--from``.
        end (str | None): ``--to``.
        columns (dict[str, ColumnType]): types that are declared.
        tables (dict[str, bytes]): contents of the files that are joined.
        texts (dict[str, str]): texts of the aggregates that are created.
        job (str): whose windows are to be checked; empty for a query.
        connect (str): agents of its fleet.
        cluster (str): the fleet's name.
        windows (int | None): the last so many of them.
        follow (bool): whether each window is judged once.

    Example:
        >>> Asked("SELECT COUNT(*) AS n FROM clicks", ("/archive",), "yesterday", "today").job
        ''
    """

    text: str = ""
    archives: tuple[str, ...] = ()
    begin: str | None = None
    end: str | None = None
    columns: dict[str, ColumnType] = {}
    tables: dict[str, bytes] = {}
    texts: dict[str, str] = {}
    job: str = ""
    connect: str = ""
    cluster: str = ""
    windows: int | None = None
    follow: bool = False


Specify = Callable[[Asked, int], Spec]
"""Makes a run of what is asked for, at a moment (ms since the epoch). Raises ``ElfError``."""


@dataclass(frozen=True)
class Schedule:
    """A schedule.

    Attributes:
        name (str): unique; its runs are called after it.
        owner (str): who has made it.
        cron (str): minute, hour, day of the month, month, day of the week; or ``@daily`` and the like.
        zone (str): whose clocks are meant, such as ``UTC`` or ``Europe/Berlin``.
        asked (Asked): what its runs are to answer.
        out (str): the file that their rows go to; ``%Y``, ``%m``, ``%d``, ``%H`` and ``%M`` are those of the
            moment.
        production (bool): their priority.
        deadline_ms (int | None): how long they have.
        late_ms (int): so much later a moment is still served.
        next_ms (int): the next moment, ms since the epoch.
        missed (int): how many moments were missed.
        said (bytes): its owner's signature; empty: none.

    Example:
        >>> schedule.cron, schedule.zone
        ('0 3 * * *', 'UTC')
    """

    name: str
    owner: str
    cron: str
    zone: str
    asked: Asked
    out: str
    production: bool
    deadline_ms: int | None
    late_ms: int
    next_ms: int = 0
    missed: int = 0
    said: bytes = b""

    @property
    def times(self) -> Cron:
        """When it comes. Raises ``UserError`` where its expression or zone is none."""
        if find_spec("croniter") is None:
            raise UserError("schedules need croniter: install elf-stream[spark] in this environment")
        from spark_backend.queue.cron import Cron

        return Cron(self.cron, self.zone)

    def run_name(self, at_ms: int) -> str:
        """What the run of a moment is called: ``nightly-20261127T0300``, in UTC."""
        return f"{self.name}-{datetime.fromtimestamp(at_ms / 1e3, UTC):%Y%m%dT%H%M}"

    def out_of(self, at_ms: int) -> Path:
        """The file of the run of a moment. Raises ``UserError`` as ``times`` does."""
        return Path(datetime.fromtimestamp(at_ms / 1e3, self.times.zone).strftime(self.out))

    def makes(self, run: Run, spec: Spec) -> bool:
        """Whether a run is what this asks for at the moment in the run's name. The span and the types of
        columns are told from that moment and the archives, and are not looked at. Raises ``UserError`` as
        ``times`` does."""
        try:
            at = datetime.strptime(run.name.removeprefix(f"{self.name}-"), "%Y%m%dT%H%M")
            at_ms = round(at.replace(tzinfo=UTC).timestamp() * 1_000)
            out = str(self.out_of(at_ms))
        except (ValueError, OverflowError):
            return False
        asked, check = self.asked, None
        if asked.job:
            span = None if spec.check is None else spec.check.span
            check = Check(asked.job, asked.connect, asked.cluster, asked.windows, span, asked.follow)
        own = Spec(asked.text, asked.archives, spec.span, spec.schemas, asked.tables, asked.texts, check)
        deadline_ms = None if self.deadline_ms is None else at_ms + self.deadline_ms
        return (spec, run.name, run.out, run.production, run.deadline_ms) == (
            *(own, self.run_name(at_ms), out, self.production, deadline_ms),
        )


@dataclass(frozen=True)
class Missed:
    """A moment that was not served: ``at_ms``, and ``why``."""

    at_ms: int
    why: str


_COLUMNS: Final = (
    "name, owner, cron, zone, asked, out, production, deadline_ms, late_ms, next_ms, missed, said"
)


class Schedules:
    """The schedules of a queue.

    Args:
        store (Store): the queue.

    Example:
        >>> Schedules(store).all()
        []
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, schedule: Schedule, now_ms: int, *, instead: bool = False) -> Schedule:
        """From now on; ``instead`` of one of this name and owner. Raises ``UserError``."""
        values = (
            *(schedule.name, schedule.owner, schedule.cron, schedule.zone),
            *(msgspec.msgpack.encode(schedule.asked), schedule.out, schedule.production),
            *(schedule.deadline_ms, schedule.late_ms, schedule.times.next_after(now_ms), schedule.said),
        )
        with self._store.writing() as con:
            if len(had := self.all()) >= SCHEDULES_MAX:
                raise UserError(f"{len(had)} schedules are in the queue: drop some")
            for one in had:
                if one.name == schedule.name and not instead:
                    raise UserError(
                        f"there is a schedule {one.name} already, of {one.owner}: elf offline unschedule "
                        f"{one.name} drops it, --replace takes its place"
                    )
                if one.name == schedule.name and one.owner != schedule.owner:
                    raise UserError(f"{one.name} is the schedule of {one.owner}")
            con.execute("DELETE FROM schedules WHERE name = ?", (schedule.name,))
            con.execute("DELETE FROM missed WHERE schedule = ?", (schedule.name,))
            con.execute(
                "INSERT INTO schedules (name, owner, cron, zone, asked, out, production, deadline_ms, "
                "late_ms, next_ms, said) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
        return self.named(schedule.name)

    def drop(self, name: str) -> None:
        """Its runs stay. Raises ``UserError`` where there is none."""
        self.named(name)
        with self._store.writing() as con:
            con.execute("DELETE FROM schedules WHERE name = ?", (name,))
            con.execute("DELETE FROM missed WHERE schedule = ?", (name,))

    def all(self) -> list[Schedule]:
        """By name."""
        with self._store.reading() as con:
            rows = con.execute(f"SELECT {_COLUMNS} FROM schedules ORDER BY name").fetchall()
        return [_schedule(row) for row in rows]

    def named(self, name: str) -> Schedule:
        """One of them. Raises ``UserError`` where there is none."""
        with self._store.reading() as con:
            row = con.execute(f"SELECT {_COLUMNS} FROM schedules WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise UserError(
                f"there is no schedule {name} in {self._store.folder}: elf offline schedules shows which "
                "there are"
            )
        return _schedule(row)

    def due(self, now_ms: int) -> list[Schedule]:
        """Those whose moment has come."""
        with self._store.reading() as con:
            rows = con.execute(
                f"SELECT {_COLUMNS} FROM schedules WHERE next_ms <= ? ORDER BY next_ms, name", (now_ms,)
            ).fetchall()
        return [_schedule(row) for row in rows]

    def missed(self, name: str) -> list[Missed]:
        """The last moments that a schedule has missed, in order."""
        with self._store.reading() as con:
            rows = con.execute(
                "SELECT at_ms, why FROM missed WHERE schedule = ? ORDER BY at_ms", (name,)
            ).fetchall()
        return [Missed(*row) for row in rows]

    def last(self, name: str) -> Run | None:
        """The last run that a schedule has made."""
        made = [run for run in self._store.runs() if run.schedule == name]
        return made[-1] if made else None

    def judged(self, name: str) -> bytes:
        """What a check that follows remembers; empty: nothing yet, or there is no such schedule."""
        with self._store.reading() as con:
            row = con.execute("SELECT judged FROM schedules WHERE name = ?", (name,)).fetchone()
        return b"" if row is None else bytes(row[0])

    def remember(self, name: str, number: int, judged: bytes) -> None:
        """For the next run of a check that follows; what a run says that is not its schedule's last one
        does not count."""
        with self._store.writing() as con:
            con.execute(
                "UPDATE schedules SET judged = ? WHERE name = ? AND NOT EXISTS "
                "(SELECT 1 FROM runs WHERE schedule = ? AND number > ?)",
                (judged, name, name, number),
            )

    def pass_on(self, schedule: Schedule, next_ms: int, missed: Sequence[Missed]) -> None:
        """Its next moment is another one, and these were missed."""
        with self._store.writing() as con:
            con.execute(
                "UPDATE schedules SET next_ms = ?, missed = missed + ? WHERE name = ?",
                (next_ms, len(missed), schedule.name),
            )
            con.executemany(
                "INSERT OR REPLACE INTO missed VALUES (?, ?, ?)",
                [(schedule.name, one.at_ms, one.why) for one in missed],
            )
            con.execute(
                "DELETE FROM missed WHERE schedule = ? AND at_ms NOT IN (SELECT at_ms FROM missed "
                "WHERE schedule = ? ORDER BY at_ms DESC LIMIT ?)",
                (schedule.name, schedule.name, MISSED_MAX),
            )


def _schedule(row: Sequence[Any]) -> Schedule:
    name, owner, cron, zone, asked, out, production, *rest = row
    decoded = msgspec.msgpack.decode(asked, type=Asked)
    return Schedule(name, owner, cron, zone, decoded, out, bool(production), *rest)


class Scheduler:
    """Submits the runs whose time has come.

    Args:
        store (Store): the queue.
        specify (Specify): makes a run of what is asked for.
        tell (Callable[[str], None]): is told what was missed, a line each.
        refused (Callable[[Schedule, float], str]): why a schedule's run must not begin at a time in s; it is
            asked before anything is read. Empty: it may.

    Example:
        >>> Scheduler(store, specify, print).tick(now_ms=0)
    """

    def __init__(
        self,
        store: Store,
        specify: Specify,
        tell: Callable[[str], None],
        refused: Callable[[Schedule, float], str] = lambda *_: "",
    ) -> None:
        self._store, self._specify, self._tell, self._refused = store, specify, tell, refused
        self._schedules = Schedules(store)
        self._untimed: dict[str, str] = {}

    def tick(self, now_ms: int) -> None:
        """Serve what is due. Raises ``UserError`` where the database cannot be used."""
        for schedule in self._schedules.due(now_ms):
            try:
                times = schedule.times
                next_ms = times.next_after(now_ms)
            except UserError as error:  # croniter or the zone is not here: its moments wait
                if self._untimed.get(schedule.name) != str(error):
                    self._untimed[schedule.name] = str(error)
                    self._tell(f"schedule {schedule.name} waits: {error}")
                continue
            self._untimed.pop(schedule.name, None)
            moments = times.between(schedule.next_ms - 1, now_ms) or [schedule.next_ms]
            self._serve(schedule, moments, next_ms, now_ms)

    def _serve(self, schedule: Schedule, moments: Sequence[int], next_ms: int, now_ms: int) -> None:
        before, at_ms = moments[:-1], moments[-1]
        missed = [Missed(at, "nobody served the queue then") for at in before]
        last = self._schedules.last(schedule.name)
        if now_ms - at_ms > schedule.late_ms:
            missed.append(Missed(at_ms, f"nobody served the queue for {schedule.late_ms / 1e3:g} s then"))
        elif last is not None and not last.over:
            missed.append(Missed(at_ms, f"{last.name} was not over then"))
        else:
            self._submit(schedule, at_ms, next_ms, now_ms, missed)
            return
        self._schedules.pass_on(schedule, next_ms, missed)
        self._name(schedule, missed)

    def _submit(
        self, schedule: Schedule, at_ms: int, next_ms: int, now_ms: int, missed: list[Missed]
    ) -> None:
        """A query that may not be asked, or cannot be planned any more, is a run that has failed."""
        why = self._refused(schedule, now_ms / 1e3)
        spec = Spec(schedule.asked.text, schedule.asked.archives)
        try:
            if not why:
                spec = self._specify(schedule.asked, at_ms)
        except (ElfError, OSError) as error:
            why = str(error)
        with self._store.writing():
            try:
                run = self._store.submit(
                    schedule.run_name(at_ms),
                    spec,
                    schedule.out_of(at_ms),
                    owner=schedule.owner,
                    production=schedule.production,
                    deadline_ms=None if schedule.deadline_ms is None else at_ms + schedule.deadline_ms,
                    now_ms=now_ms,
                    schedule=schedule.name,
                    said=schedule.said,
                )
                if why:
                    self._store.update(run.number, state="failed", why=why, ended_ms=now_ms)
                    self._tell(f"{run.name} has failed: {why}")
            except UserError as error:  # the queue is full
                missed.append(Missed(at_ms, str(error)))
            self._schedules.pass_on(schedule, next_ms, missed)
            self._store.forget(schedule.name, KEPT_MAX)
        self._name(schedule, missed)

    def _name(self, schedule: Schedule, missed: Sequence[Missed]) -> None:
        if missed:
            more = f" and {len(missed) - 1} before" if len(missed) > 1 else ""
            self._tell(f"{schedule.name} has missed {shown(missed[-1].at_ms)}{more}: {missed[-1].why}")


def shown(at_ms: int) -> str:
    """A moment for people: UTC, to the minute."""
    return f"{datetime.fromtimestamp(at_ms / 1e3, UTC):%Y-%m-%dT%H:%MZ}"
