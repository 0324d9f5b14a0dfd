"""Alerts over very many windows, beside a judge that knows what was in the agents' logs.

A history is one job and one alert on it. The lines of each window are drawn for each agent: times when there
are many follow times when there are few. Agents are away, and their lines come as a revision of the window,
or never; others bring some lines late; and the job is altered. What the alert says goes out by the product's
own way (``Deliveries``, ``said``, conditions in DuckDB), from a record that lags behind. Masters die at any
moment, and some of those that are dead to others go on for a while; the target is down at times, or takes
what comes and says that it has not.

The judge goes by what the logs had and who had reported, in three-valued logic written out. A notice that
says what is not so is *false*, one that has not come is *missing*, one that came with two texts is *twofold*.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from multiprocessing import get_context
from typing import Final

import msgspec
import pyarrow as pa

from agents.outputs.delivering import Deliveries
from agents.outputs.parcels import Parcel
from elf.batch import encode
from elf.errors import UserError
from elf.job.commits import WindowCommit
from elf.job.effects import Deliver
from elf.job.output import OutputKept, OutputSpec
from elf.job.spec import JobSpec
from elf.ql.alert import Alert
from elf.ql.plan import Plan
from elf.ql.planner import plan_text
from elf.schema import Column, Schema
from lab.chaos.engine import planned, spec_of

WINDOWS: Final = 250
"""Of a history."""
SIZE_S: Final = 10
AGENTS: Final = 5
HOSTS: Final = ("a", "b", "c")
MANY: Final = 4 * AGENTS
"""As many lines as make the condition true: an agent has 2 a window, or 6."""
TARGET: Final = "https://outside.example"
_SCHEMA: Final = Schema((Column("host", "text"), Column("ts", "timestamp")), "ts")
_PER_HOST: Final = "SELECT host, COUNT(*) AS n FROM access GROUP BY host"
_ALL: Final = "SELECT COUNT(*) AS n FROM access"
_TIME: Final = pa.timestamp("us")


@dataclass(frozen=True)
class Result:
    """A commit of a window: its place among windows, and what is in it."""

    place: int
    revision: int
    version: int
    reported: frozenset[int]
    lines: dict[str, int]
    """By host."""


@dataclass(frozen=True)
class Said:
    """What a notice says, as far as it follows from the logs."""

    number: int
    state: str
    firing: tuple[str, ...]
    """Hosts, or no name for all rows."""
    missing: tuple[str, ...]
    place: int
    revision: int


@dataclass
class Found:
    """What came of some histories. ``masters``: that died; ``again``: notices that came more than once."""

    windows: int = 0
    results: int = 0
    masters: int = 0
    again: int = 0
    notices: Counter[str] = field(default_factory=Counter)
    """By state."""
    wrong: Counter[str] = field(default_factory=Counter)
    """``false``, ``missing`` and ``twofold``."""
    seeds: list[str] = field(default_factory=list)
    """The histories in which something was wrong."""

    def add(self, other: Found) -> None:
        """What came of another one too."""
        for name in ("windows", "results", "masters", "again", "notices", "wrong", "seeds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def facts(self) -> dict[str, object]:
        kinds = {kind: self.wrong[kind] for kind in ("false", "missing", "twofold")}
        counts = {"windows": self.windows, "results": self.results, "masters_lost": self.masters}
        states = {state: self.notices[state] for state in ("firing", "quiet", "unknown")}
        return {**counts, **states, "came_again": self.again, **kinds, "wrong_seeds": self.seeds}


def simulate(windows: int, seed: int, workers: int) -> Iterator[Found]:
    """Histories, until they have so many windows, so many at once; after each what was found so far."""
    histories = [
        (f"{seed}/{number}", min(WINDOWS, windows - number * WINDOWS))
        for number in range(-(-windows // WINDOWS))
    ]
    found = Found()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as processes:
        for done in processes.map(played, *zip(*histories, strict=True)):
            found.add(done)
            yield found


def played(seed: str, windows: int) -> Found:
    """One history."""
    found = Found()
    History(seed, windows).play(found)
    if found.wrong.total():
        found.seeds.append(seed)
    return found


class History:
    """One, of a seed."""

    def __init__(self, seed: str, windows: int) -> None:
        self._rng = rng = random.Random(seed)
        text, by = rng.choice([(_PER_HOST, ("host",)), (_PER_HOST, ()), (_ALL, ())])
        when = f"n >= {MANY}" if text == _PER_HOST else f"n >= {MANY * len(HOSTS)}"
        self.alert = Alert(when, rng.choice([1, 1, 2, 3, 5]), rng.choice([1.0, 1.0, 0.8, 0.5]), by)
        self.text, self._windows = text, windows
        self._job = spec_of("busy", "me", 1, _planned(text))
        self._spec = OutputSpec("many", "me", 1, self._job.uid, TARGET, alert=self.alert)
        self._made: list[JobSpec] = []
        self.results = list(self._drawn(windows))
        self._rows = [self._row(number, result) for number, result in enumerate(self.results, 1)]

    # -- what is in the logs ---------------------------------------------------------------------------------

    def _drawn(self, windows: int) -> Iterator[Result]:
        """In the order of their commits."""
        rng, version = self._rng, 1
        busy = dict.fromkeys(HOSTS, False)
        away = dict[int, int]()
        due: list[tuple[int, int]] = []
        """When more of a window comes: its place second."""
        made = dict[int, list[Result]]()
        for place in range(windows):
            version += rng.random() < 0.01
            busy = {host: one if rng.random() < 0.8 else not one for host, one in busy.items()}
            away = {agent: left - 1 for agent, left in away.items() if left > 1}
            if rng.random() < 0.08:
                away[rng.randrange(AGENTS)] = rng.randrange(1, 12)
            there = frozenset(set(range(AGENTS)) - away.keys())
            each = {host: 6 if busy[host] else 2 for host in HOSTS}
            lines = {host: max(n * len(there) - rng.choice([0, 0, 0, 3]), 0) for host, n in each.items()}
            made[place] = [Result(place, 0, version, there, lines)]
            yield made[place][0]
            if any(lines[host] < n * len(there) for host, n in each.items()):
                due.append((place + rng.randrange(1, 4), place))
            if away and rng.random() < 0.7:
                due.append((place + rng.randrange(1, 8), place))
            for one in sorted(one for one in due if one[0] <= place):
                due.remove(one)
                yield self._more(made[one[1]])

    def _more(self, made: list[Result]) -> Result:
        """The next revision of a window: who was away brings its lines, or who is there its last."""
        last = made[-1]
        lacking = sorted(set(range(AGENTS)) - last.reported)
        back = lacking[: self._rng.randrange(len(lacking) + 1)]
        lines = {host: n + 6 * len(back) + self._rng.choice([0, 3]) for host, n in last.lines.items()}
        made.append(
            Result(last.place, last.revision + 1, last.version, last.reported | frozenset(back), lines)
        )
        return made[-1]

    def _row(self, number: int, result: Result) -> WindowCommit:
        """As the job's group keeps it."""
        first, last = (place * SIZE_S * 1_000_000 for place in (result.place, result.place + 1))
        rows = result.lines if self.text == _PER_HOST else {"": sum(result.lines.values())}
        bounds = {"window_start": first, "window_end": last}
        table = {name: pa.array([at] * len(rows), _TIME) for name, at in bounds.items()}
        if self.text == _PER_HOST:
            table["host"] = pa.array(list(rows), pa.string())
        table["n"] = pa.array(list(rows.values()), pa.int64())
        status = {name: pa.array([at], _TIME) for name, at in bounds.items()}
        status["revision"] = pa.array([result.revision])
        status["expected"], status["reported"] = pa.array([AGENTS]), pa.array([len(result.reported)])
        missing = [f"web-{agent}" for agent in range(AGENTS) if agent not in result.reported]
        status["missing"] = pa.array([missing], pa.list_(pa.string()))
        return WindowCommit(
            *(self._job.uid, first, last, result.revision, result.version, False),
            *(encode(pa.table(status)), encode(pa.table(table)), b"", number),
        )

    # -- what goes out ---------------------------------------------------------------------------------------

    def play(self, found: Found) -> None:
        """All of it, and what the judge says."""
        rng, outside = self._rng, Outside(self._rng)
        record, master = self._begun(), Master(outside, self._begun())
        stale: list[Master] = []
        for number in range(1, len(self._rows) + 1):
            outside.wears()
            master.knows = self._rows[:number]
            if rng.random() < 0.7:
                master.deliver(self._spec, self._versions(_newest(master.knows)))
            if rng.random() < 0.4:
                record = master.got
            if rng.random() < 0.05:
                found.masters += 1
                stale = [*stale[-2:], master] if rng.random() < 0.5 else []
                master = Master(outside, record)
            for one in stale:
                if rng.random() < 0.3:
                    one.knows = one.knows or self._rows[: number - 1]
                    one.deliver(self._spec, self._versions(_newest(one.knows)))
        outside.down = 0
        outside.lies = False
        master.knows = self._rows
        while master.got.number < len(self._rows):
            master.deliver(self._spec, self._versions(_newest(self._rows)))
        found.windows += self._windows
        found.results += len(self._rows)
        self._judge(outside, found)

    def _begun(self) -> OutputKept:
        return OutputKept(self._job.uid, self._spec.uid, 0)

    def _versions(self, newest: int) -> tuple[JobSpec, ...]:
        """Those that a master knows, the newest first."""
        plan = _planned(self.text)
        while len(self._made) < newest:
            self._made.append(planned(self._job, plan, version=len(self._made) + 1))
        return tuple(self._made[newest - 1 :: -1])

    def _judge(self, outside: Outside, found: Found) -> None:
        came = dict(outside.came)
        texts = set(outside.came)
        wanted = {said.number: said for said in judged(self.alert, self.results)}
        found.again += len(outside.came) - len(texts)
        found.notices.update(said.state for said in came.values())
        found.wrong["twofold"] += len(texts) - len(came)
        found.wrong["missing"] += len(wanted.keys() - came.keys())
        found.wrong["false"] += sum(said != wanted.get(number) for number, said in came.items())


def _newest(rows: Sequence[WindowCommit]) -> int:
    """The newest version of the job that made some of them; the last may be a revision of an old window."""
    return max((row.version for row in rows), default=1)


@cache
def _planned(text: str) -> Plan:
    return plan_text(f"{text} WINDOWING {SIZE_S} SECONDS", _SCHEMA, stream="access")


class Outside:
    """The target: ``came`` has the number and the meaning of each notice, as often as it came."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.down = 0
        """For so many results more."""
        self.lies = True
        """It says at times that it has not taken what it has."""
        self.came: list[tuple[int, Said]] = []

    def wears(self) -> None:
        """Another result is committed."""
        self.down = max(self.down - 1, 0) or (self._rng.randrange(1, 20) if self._rng.random() < 0.01 else 0)

    def put(self, parcels: Sequence[Parcel]) -> None:
        """See ``agents.outputs.targets.Target``."""
        if self.down:
            raise UserError("the target is down")
        self.came += [(said.number, said) for said in (_read(parcel.json) for parcel in parcels)]
        if parcels and self.lies and self._rng.random() < 0.1:
            raise UserError("no answer")

    def close(self) -> None:
        """Nothing is open."""


def _read(body: bytes) -> Said:
    told = msgspec.json.decode(body)
    start = datetime.fromisoformat(told["window_start"])
    return Said(
        told["number"],
        told["state"],
        tuple(sorted(msgspec.json.decode(group).get("host", "") for group in told["firing"])),
        tuple(sorted(told["missing"])),
        int(start.timestamp()) // SIZE_S,
        told["revision"],
    )


class Master:
    """Of the job: how far it has got with the alert, and the results that it knows."""

    def __init__(self, outside: Outside, got: OutputKept) -> None:
        self.got = got
        self.knows: Sequence[WindowCommit] = ()
        self._deliveries = Deliveries("web-1:7071", (TARGET,), openers={"https": lambda *_: outside})

    def deliver(self, output: OutputSpec, versions: tuple[JobSpec, ...]) -> None:
        self.got = self._deliveries.deliver(Deliver(output, versions[0], self.got, versions), self).kept

    def some_windows_after(self, _job: str, seq: int, most: int, _bytes: int) -> list[WindowCommit]:
        """See ``agents.ports.Results``."""
        return list(self.knows[seq : seq + most])


def judged(alert: Alert, results: Sequence[Result]) -> Iterator[Said]:
    """What the alert has to say of these results, one after the other."""
    newest = dict[int, Result]()
    version, firing, state, number = 0, frozenset[str](), "quiet", 0
    for result in results:
        if result.version < version:
            continue
        if result.version > version:
            newest, version = {}, result.version
        newest[result.place] = result
        run = [newest[place] for place in sorted(newest)[-alert.windows :]]
        every = {group: _and(group, alert, run) for group in ("", *HOSTS) if alert.by or not group}
        begin = {group for group, true in every.items() if true and len(run) == alert.windows}
        stay = {group for group in firing if every[group] is not False}
        unsure = None in every.values() and (len(run) == alert.windows or bool(firing))
        was, firing = (firing, state), frozenset(begin | stay)
        state = "unknown" if unsure else "firing" if firing else "quiet"
        if (firing, state) != was:
            number += 1
            lacking = {
                f"web-{one}"
                for seen in run
                if not _known(alert, seen)
                for one in set(range(AGENTS)) - seen.reported
            }
            last = (tuple(sorted(lacking)), result.place, result.revision)
            yield Said(number, state, tuple(sorted(firing)), *last)


def _known(alert: Alert, result: Result) -> bool:
    return len(result.reported) >= alert.coverage * AGENTS


def _and(group: str, alert: Alert, run: Sequence[Result]) -> bool | None:
    """Whether the condition is true in all of them, for a host or (no name) for all rows."""
    each = [_is_true(group, alert, result) if _known(alert, result) else None for result in run]
    return False if False in each else None if None in each else True


def _is_true(group: str, alert: Alert, result: Result) -> bool:
    if alert.by:
        return result.lines.get(group, 0) >= MANY
    if str(MANY * len(HOSTS)) in alert.when:
        return sum(result.lines.values()) >= MANY * len(HOSTS)
    return max(result.lines.values()) >= MANY
