"""The language of ``tests/job/scripts/*.txt``: what happens to rows in time, and which windows come of it.

A script is a list of blocks: commands, a line ``----``, the windows that were committed meanwhile. Times are
seconds: of the clock from when the script begins, and of event time on the same scale. The fleet is that of
``world``: real workers, roots and masters on virtual time.

    fleet 2 window 10 slide 5 lateness 2 idle 4 future 60 job 1
                          agents, and what is not as by default (a tumbling window of 10 s, lateness 0,
                          idle 4, future 60, all agents up, rows of key x)
    row a0 3.5 x          a row of that event time and key is appended to the log of agent a0
    row a0/b 3.5 x        to its second log, b
    wait 5                five seconds pass
    until 20              the clock comes to that
    start a2 | leave a1 | crash a1
    clock a1 7            that agent's clock is 7 s ahead from now on
    sources               the agents' watermarks are shown
    skews                 clocks that the master takes for more than 0.2 s ahead of (or behind) the others
    late                  a job over the late rows of the first one, whose windows are shown from now on
    follow                somebody reads what changes (of a fleet with changes)

Further options of ``fleet``: ``revise 8`` (EMIT FINAL REVISE 8 SECONDS), ``changes 0.5`` (EMIT CHANGES
EVERY 500 MILLISECONDS), ``final 1`` (a final function that drops y, and fails on bomb). A window is shown as
``[0, 10) x 2, y 1``, then how many agents it covers, who is missing, and the counts that are not 0;
``revision 1`` of it likewise. What a follower is told comes first: ``early [0, …) + x 2, - x 1``, or
``final …``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from agents.answering.clients import Step
from elf.batch import decode as table_of
from elf.client.windows import Changes, split
from elf.fields import replace
from elf.job import events as was
from elf.job.commands import Feed, Idle
from elf.job.messages.groups import SubscribeJob
from elf.job.spec import JobSpec
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.ql.plan import Function
from elf.windows import Sliding
from elf.wire.clients import WindowResult
from lab.chaos.agent import SimAgent
from lab.chaos.books import us_of
from lab.chaos.engine import SECOND, STREAM, Chunk, Source, plan
from lab.chaos.task import SimTask
from lab.chaos.world import World

COUNTS = ("late", "future", "unrostered", "rejected")
OPTIONS = {
    "window": 10.0,
    "slide": 0.0,
    "lateness": 0.0,
    "idle": 4.0,
    "future": 60.0,
    "asleep": 0.0,
    "revise": -1.0,
    "changes": -1.0,
    "final": 0.0,
}
FINAL = """\
def final(batch):
    keys = batch["k0"].to_pylist()
    assert "bomb" not in keys
    return batch.take([place for place, key in enumerate(keys) if key != "y"])
"""


class ScriptTask(SimTask):
    """A stream task with several logs, each row of which is read at once. A log is named after its stream, a
    second one ``clicks/b``.
    """

    def __init__(self, agent: SimAgent, stream: str) -> None:
        super().__init__(agent, stream)
        self._read = {source.id: source.end for source in self.checkpoint.sources} if self.checkpoint else {}

    def read(self) -> None:
        agent, fed = self._agent, False
        for name, log in agent.logs.items():
            start = self._read.get(name, 0)
            rows = log.rows[start:]
            if rows and not agent.node.leaving:
                self._read[name] = start + len(rows)
                lines = pa.array([f"{ts},{key}" for ts, key in rows], pa.string())
                offsets = np.arange(start, start + len(rows), dtype=np.int64)
                self.give(Feed(Chunk(Source(name), start, start + len(rows), lines, offsets), agent.now_ms))
                fed = True
        if not fed and not self._waiting:
            self.give(Idle(agent.now_ms))
        agent.world.after(100, agent, self.read)


class Stage:
    """Performs the commands of a script."""

    def __init__(self) -> None:
        self._world: World
        self._specs: dict[str, JobSpec] = {}
        self._zero_ms = 0
        self._shown: dict[tuple[str, int], int] = {}
        self._heard: list[WindowResult] = []
        self._changes = Changes()
        self._commands: dict[str, Callable[..., list[str]]] = {
            "fleet": self._fleet,
            "row": self._row,
            "wait": self._wait,
            "until": self._until,
            "start": lambda name: self._begin(self._agent(name)),
            "leave": self._leave,
            "crash": self._crash,
            "clock": self._clock,
            "sources": self._sources,
            "skews": self._skews,
            "late": self._late,
            "follow": self._follow,
        }

    def perform(self, commands: tuple[str, ...]) -> tuple[str, ...]:
        """What the commands of a block show; then the windows that were committed meanwhile."""
        shown: list[str] = []
        for line in commands:
            command, *arguments = line.partition("#")[0].split() or [""]
            if command:
                shown += self._commands[command](*arguments)
        return (*shown, *self._told_changes(), *self._windows())

    def _fleet(self, agents: str, *options: str) -> list[str]:
        given = OPTIONS | {k: float(v) for k, v in zip(options[::2], options[1::2], strict=True)}
        assert given.keys() == OPTIONS.keys(), options
        world = self._world = World(1, int(agents))
        world.task = ScriptTask
        lateness = int(given["lateness"] * SECOND)
        world.worker_settings = WorkerSettings(
            idle_ms=int(given["idle"] * 1000),
            future_us=int(given["future"] * SECOND),
            lateness_us=lateness,
            checkpoint_ms=1_300,
        )
        awake = world.agents[: int(agents) - int(given["asleep"])]
        for agent in awake:
            agent.start([] if agent is world.agents[0] else [world.agents[0].address])
        world.run_until(lambda: all(a.node.ready for a in awake))
        world.run_until(lambda: all(len(a.node.log.members("clicks")) == len(awake) for a in awake))
        query = plan(int(given["window"]), int(given["slide"]) or None, lateness)
        revise_us, changes_us = (
            int(given[word] * SECOND) if given[word] >= 0 else None for word in ("revise", "changes")
        )
        emitted = replace(query.fragment, revise_us=revise_us, changes_us=changes_us)
        query = replace(query, fragment=emitted)
        if given["final"]:
            query = replace(query, final=Function("final", FINAL, "final.py"))
        self._specs["job"] = world.create(0, query)
        self._zero_ms = -(-world.now // 60_000) * 60_000
        world.run(self._zero_ms - world.now)
        return []

    def _agent(self, name: str) -> SimAgent:
        return self._world.agents[int(name.removeprefix("a"))]

    def _row(self, where: str, at: str, key: str = "x") -> list[str]:
        name, _, log = where.partition("/")
        ts = self._zero_ms * 1000 + round(float(at) * SECOND)
        self._agent(name).logs[f"{STREAM}/{log}" if log else STREAM].rows.append((ts, key))
        return self._wait("0.2")

    def _wait(self, seconds: str) -> list[str]:
        self._world.run(round(float(seconds) * 1000))
        return []

    def _until(self, clock: str) -> list[str]:
        self._world.run(max(0, self._zero_ms + round(float(clock) * 1000) - self._world.now))
        return []

    def _begin(self, agent: SimAgent) -> list[str]:
        self._world.restart(agent)
        return self._wait("3")

    def _leave(self, name: str) -> list[str]:
        agent = self._agent(name)
        agent.perform(agent.node.leave(self._world.now))
        return self._wait("3")

    def _crash(self, name: str) -> list[str]:
        self._agent(name).crash()
        return []

    def _clock(self, name: str, ahead: str) -> list[str]:
        self._agent(name).clock_ms = round(float(ahead) * 1000)
        return []

    def _skews(self) -> list[str]:
        leader = self._world.leader(self._specs["job"])
        found = {
            self._world.by_address[address].index: skew
            for address, skew in leader.node.clocks.skews(leader.now_ms).items()
            if abs(skew) > 200
        }
        told = [f"clock of a{index}: {found[index] / 1000:+.0f}" for index in sorted(found)]
        return told or ["clocks agree"]

    def _late(self) -> list[str]:
        flow = self._specs["job"].flows[0]
        query = self._specs["job"].plan
        over = replace(query.fragment, late_of=flow.uid, revise_us=None, changes_us=None)
        self._specs["late"] = self._world.create(0, replace(query, fragment=over, spark_sql=""), "late")
        return self._wait("1")

    def _follow(self) -> list[str]:
        reader, spec = self._world.agents[0], self._specs["job"]

        def published(result: WindowResult, now_ms: int) -> list[Step]:
            self._heard.append(result)
            return []

        reader.node.clients.published = published  # type: ignore[method-assign]
        asked = SubscribeJob(id=1, origin=reader.address, uid=spec.uid, after=None)

        def ask() -> None:
            self._world.leader(spec).handle(was.Arrived(reader.address, asked))
            self._world.at(self._world.now + 2_000, ask)

        ask()
        return self._wait("1")

    def _told_changes(self) -> list[str]:
        heard, self._heard = self._heard, []
        found = []
        for window in (window for result in heard for window in split(result)):
            rows = self._changes.of(window).to_pylist()
            assert window.start is not None
            start = int(window.start.timestamp()) - self._zero_ms // 1000
            if rows and start >= 0:
                what = ", ".join(sorted(f"{row['_op']} {row['k0']} {row['s0']}" for row in rows))
                found.append(f"{'early' if window.early else 'final'} [{start}, …) {what}")
        return found

    def _sources(self) -> list[str]:
        found = []
        for agent in self._world.agents:
            if agent.up:
                us = agent.worker.watermark_us(agent.now_ms)
                at = "none" if us == LONG_AGO else f"{us / SECOND - self._zero_ms / 1000:g}"
                found.append(f"watermark of a{agent.index}: {at}")
        return found

    def _windows(self) -> list[str]:
        found = []
        for name, spec in self._specs.items():
            (size,) = (kind.size_us for kind in spec.plan.windows if isinstance(kind, Sliding))
            for row in self._world.leader(spec).store.windows(spec.uid, -(1 << 62), 1 << 62):
                rows = table_of(row.rows).to_pylist()
                for status in table_of(row.status).to_pylist():
                    start, revision = us_of(status["window_start"]), status["revision"]
                    counts = {r["k0"]: r["s0"] for r in rows if us_of(r["window_start"]) == start}
                    zero = self._zero_ms * 1000
                    if start < zero or self._shown.get((name, start), -1) >= revision:
                        continue
                    self._shown[name, start] = revision
                    text = _told((start - zero) // SECOND, size // SECOND, counts, status)
                    if name == "job" or counts:
                        found.append((name, start, revision, text if name == "job" else f"{name}: {text}"))
        return [text for *_, text in sorted(found)]


def _told(start: int, size: int, counts: dict[str, int], status: dict[str, Any]) -> str:
    what = ", ".join(f"{key} {count}" for key, count in sorted(counts.items())) or "nothing"
    text = f"[{start}, {start + size}) {what}; {status['reported']} of {status['expected']} agents"
    if status["missing"]:
        text += f" without {', '.join(status['missing'])}"
    text += "".join(f", {name} {status[name]}" for name in COUNTS if status[name])
    text += ", function_failed" if status["function_failed"] else ""
    return f"revision {status['revision']}: {text}" if status["revision"] else text
