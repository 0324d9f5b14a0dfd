"""Work that is run again (``elf.job.reexecution``): whatever order lines come in, however each agent cuts
them into chunks and wherever the first one stops, a row is in the answer for its pane, or named late, never
both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from agents.config import StreamConfig
from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.tail import Tail
from agents.streams import reading_of
from agents.tasks import running
from agents.tasks.checkpoints import load_checkpoint
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.batch import decode
from elf.fields import replace
from elf.job.commands import Answered, Idle, Install, Outcome, SealOpen, Suspend
from elf.job.effects import Run
from elf.job.messages.rollup import NotRun, Reexecute, RunSlice
from elf.job.reexecution import SOURCES_MAX, Reading, SourceOffsets, Where
from elf.job.spec import Flow, flow_uid
from elf.job.worker.stream import WorkerSettings
from elf.ql.planner import plan_text
from elf.schema import Column, Schema
from tests.support.long import cases

SCHEMA = Schema((Column("ts", "timestamp"), Column("k", "text"), Column("n", "bigint")), "ts")
QUERY = "SELECT k, SUM(n) AS n FROM clicks GROUP BY k WINDOWING 1 SECONDS STRAGGLERS MIRROR"
FRAGMENT = replace(plan_text(QUERY, SCHEMA).fragment, lateness_us=1_000_000)
FLOW = Flow(flow_uid(FRAGMENT, "1"), FRAGMENT, bytes(16), "root:1")
T0_S = 1_700_000_000
NOW_MS = (T0_S + 30) * 1000
IDLE_MS = 10_000
OF, ROOT = 3, "root:1"
NOWHERE = Reading("json", "ts", None, None, 0, 1 << 20, ())


def line(at_ms: int, n: int = 1) -> str:
    """A line with a time so long after T0."""
    whole, rest = divmod(T0_S * 1000 + at_ms, 1000)
    return f'{{"ts": {whole}.{rest:03d}, "k": "a", "n": {n}}}\n'


def pane(second: int) -> int:
    return T0_S + second


@dataclass
class Agent:
    """A stream task over the files of a folder, and all that came of it."""

    folder: Path
    bytes_max: int = 60
    shared: str = "as json"
    now_ms: int = NOW_MS
    checkpoint_ms: int = 0
    store: Store = field(default_factory=lambda: Store(":memory:"))
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        include = (str(self.folder / "*.log"),)
        worker = WorkerSettings(
            idle_ms=IDLE_MS, checkpoint_ms=self.checkpoint_ms, lateness_us=1_000_000, shared=self.shared
        )
        bounds = (worker.future_us, worker.lateness_us, worker.since_us, 1 << 20)
        facts = TaskStatus("clicks", get_format("json"), None, "")
        self.task = StreamTask(facts, worker, self.store, reading=Reading("json", None, *bounds, include))
        checkpoint = load_checkpoint(self.store, "clicks")
        self.tail = Tail(include, scan_every_ms=0, positions=checkpoint.positions if checkpoint else ())
        self.perform(Install(FLOW))

    def crashed(self) -> Agent:
        """The same, from its last checkpoint."""
        self.task.close(checkpoint=False)
        self.tail.close()
        return replace(self)

    def perform(self, command: Install | Idle | Answered | Suspend | SealOpen) -> Outcome:
        outcome = self.task.perform(command, self.now_ms)
        self.outcomes.append(outcome)
        return outcome

    def read(self, chunks: int = 1 << 30) -> None:
        for _ in range(chunks):
            chunk = self.tail.read(self.bytes_max, self.now_ms)
            if chunk is None:
                return
            self.outcomes.append(self.task.feed(chunk, self.tail.positions(), self.now_ms))

    def idle(self) -> None:
        self.perform(Idle(self.now_ms, self.tail.finished()))

    @property
    def where(self) -> Where | None:
        """What it has said last."""
        return next((one.where[0] for one in reversed(self.outcomes) if one.where), None)

    @property
    def late(self) -> int:
        return sum(one.counts.get("late", 0) for one in self.outcomes)

    def sealed(self) -> dict[int, Counter[str]]:
        """Rows and their sum in each pane that it has sealed."""
        found: dict[int, Counter[str]] = {}
        for one in (one for outcome in self.outcomes for one in outcome.sealed):
            counted(one.counters, one.payload, found)
        return found

    def answered(self, *offsets: tuple[int, int]) -> Outcome:
        """It hears that others have answered for panes that it has sealed: (pane, number of the mark)."""
        rows = [(row.start, row.end, row.part) for row in self.store.snapshots(FLOW.uid)]
        spans = {name: tuple((p, p + 1, m) for p, m in offsets if name[0] <= p < name[1]) for name in rows}
        return self.perform(
            Answered(FLOW.uid, tuple((name, found) for name, found in spans.items() if found))
        )

    def close(self) -> None:
        self.task.close(checkpoint=False)
        self.tail.close()
        self.store.close()


def counted(counters: bytes, payload: bytes, found: dict[int, Counter[str]]) -> None:
    for row in decode(counters).to_pylist() if counters else ():
        found.setdefault(row["_pane"], Counter())["rows"] += row["rows_in"]
    for row in decode(payload).to_pylist() if payload else ():
        found.setdefault(row["_pane"], Counter())["sum"] += int(row[FRAGMENT.states[0].name])


def seen(reading: Reading) -> tuple[str, ...]:
    """The files that its helper may read: all that are in its folder."""
    return tuple(str(Path(pattern).with_name("*")) for pattern in reading.include)


def run(where: Where | None, pane: int, bytes_max: int = 1 << 20, chunk: int = 1 << 20) -> RunSlice | NotRun:
    """As another agent does that is asked for a pane."""
    offsets = None if where is None else where.offsets(pane)
    if where is None or offsets is None or where.reading is None:
        return NotRun(flow=FLOW.uid, member=OF, pane=pane, why="nobody knows from where")
    sent = msgspec.msgpack.encode(
        Reexecute(flow=FLOW.uid, member=OF, pane=pane, offsets=offsets, reading=where.reading)
    )
    asked = msgspec.msgpack.decode(sent, type=Reexecute)
    return running.ran(Run(FLOW, asked, ROOT), seen(asked.reading), bytes_max, chunk).answer


def rows_of(answer: RunSlice) -> Counter[str]:
    found: dict[int, Counter[str]] = {}
    counted(answer.counters, answer.payload, found)
    return found.get(answer.start, Counter())


def append(path: Path, times_ms: Sequence[int]) -> None:
    with path.open("a") as file:
        file.writelines(line(at_ms, 1 + at_ms % 7) for at_ms in times_ms)


TIMES = st.lists(st.integers(0, 8_000), min_size=1, max_size=12)


@settings(max_examples=cases(25, 600), deadline=None)
@given(
    st.lists(st.tuples(TIMES, st.none() | TIMES), min_size=1, max_size=3),
    st.integers(1, 12),
    st.integers(40, 300),
    st.integers(40, 300),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 1 << 40]),
)
def test_a_row_is_in_the_answer_or_named(
    files: list[tuple[list[int], list[int] | None]],
    chunks: int,
    size: int,
    other_size: int,
    sleeps: bool,
    crashes: bool,
    checkpoint_ms: int,
) -> None:
    """Of all panes for which another answers: its rows and those that the agent names late when it hears of
    it are all that were ever written. Files: lines before it stops, and after; None: it stays silent."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"{number}.log" for number in range(len(files))]
        for path, (times, _) in zip(paths, files, strict=True):
            append(path, times)
        agent = Agent(folder, size, checkpoint_ms=checkpoint_ms)
        try:
            agent.read(len(files) if sleeps else chunks)
            if sleeps:
                agent.read()
                for _ in range(IDLE_MS // 1_000 + 1):
                    agent.now_ms += 1_000
                    agent.idle()
            for path, (_, then) in zip(paths, files, strict=True):
                append(path, [*then, 20_000, 20_001, 20_002] if then is not None else [])
            agent.read(chunks if sleeps else 0)
            answers = [run(agent.where, pane(second), chunk=other_size) for second in range(9)]
            if crashes:
                agent = agent.crashed()
            append(folder / "new.log", [3_500, 20_000])
            for path, (_, then) in zip(paths, files, strict=True):
                append(path, [] if then is not None else [5_500, 20_000])
            agent.read()
            agent.idle()
            check(agent, [one for one in answers if isinstance(one, RunSlice)], folder, woke=sleeps)
        finally:
            agent.close()


def check(agent: Agent, answers: Sequence[RunSlice], folder: Path, *, woke: bool) -> None:
    written = Counter[int]()
    for path in folder.iterdir():
        for text in path.read_text().splitlines():
            written[int(msgspec.json.decode(text)["ts"])] += 1
    sealed, panes = agent.sealed(), [answer.start for answer in answers]
    late = sum(written[one] - sealed.get(one, Counter())["rows"] for one in panes)
    outcome = agent.answered(*((answer.start, answer.offsets) for answer in answers))
    rows = sum(rows_of(answer)["rows"] for answer in answers)
    named = late + outcome.counts.get("late", 0)
    if woke:
        assert rows + named >= sum(written[one] for one in panes), "a silent file may be named late, too"
    else:
        assert rows + named == sum(written[one] for one in panes)
    event(f"{len(answers)} answers, {rows} rows, {named} named")


# -- what it does not run ------------------------------------------------------------------------------------


def stopped(folder: Path, *files: Sequence[int], chunks: int = 1 << 30) -> Agent:
    """An agent that has read files of these lines, a line a chunk, and a checkpoint."""
    for number, times in enumerate(files):
        append(folder / f"{number}.log", times)
    agent = Agent(folder, 40)
    agent.read(chunks)
    agent.idle()
    return agent


def why(answer: RunSlice | NotRun) -> str:
    assert isinstance(answer, NotRun), answer
    assert (answer.member, answer.start if isinstance(answer, RunSlice) else answer.pane) == (OF, pane(1))
    return answer.why


def test_the_answer_is_what_the_agent_would_have_sealed(tmp_path: Path) -> None:
    agent = stopped(tmp_path, [100, 900, 1_100])
    append(tmp_path / "0.log", [1_900, 2_800, 1_500, 3_100, 1_800, 9_000])
    answer = run(agent.where, pane(1))
    assert isinstance(answer, RunSlice)
    agent.read()
    own = agent.sealed()[pane(1)]
    assert rows_of(answer) == own
    assert own["rows"] == 3, "two are late by their own file: 1.5 after 2.8 is not, 1.8 after 3.1 is"
    assert agent.late == 1
    agent.close()


def test_nothing_is_run_before_every_file_has_gone_by_the_end_of_the_pane(tmp_path: Path) -> None:
    agent = stopped(tmp_path, [100, 1_100], [200, 1_200])
    append(tmp_path / "0.log", [9_000])
    assert why(run(agent.where, pane(1))) == f"{tmp_path}/1.log has not gone by the end of the pane"
    append(tmp_path / "1.log", [2_999])
    assert "has not gone by" in why(run(agent.where, pane(1)))
    append(tmp_path / "1.log", [3_000])
    assert isinstance(run(agent.where, pane(1)), RunSlice)
    agent.close()


def test_a_silent_file_is_not_waited_for_unless_it_speaks(tmp_path: Path) -> None:
    agent = stopped(tmp_path, [100], [200])
    for _ in range(IDLE_MS // 1_000):
        agent.now_ms += 1_000
        append(tmp_path / "0.log", [100])
        agent.read()
    append(tmp_path / "0.log", [1_100])
    agent.read()
    agent.idle()
    append(tmp_path / "0.log", [9_000])
    answer = run(agent.where, pane(1))
    assert isinstance(answer, RunSlice)
    append(tmp_path / "1.log", [1_500])
    assert why(run(agent.where, pane(1))) == f"{tmp_path}/1.log says something again"
    append(tmp_path / "1.log", [9_000])
    agent.read()
    assert agent.sealed()[pane(1)]["rows"] == 2, "it had not sealed it"
    outcome = agent.answered((pane(1), answer.offsets))
    assert outcome.counts["answered"] == 1
    assert agent.late == 1, "the row of the file that was silent, once"
    agent.close()


def test_a_file_that_is_new_or_another_or_ahead_or_too_large_is_not_run(tmp_path: Path) -> None:
    agent = stopped(tmp_path, [1_100])
    log, was = tmp_path / "0.log", tmp_path / "0.log.1"
    append(log, [2_000, 9_000])
    assert isinstance(run(agent.where, pane(1)), RunSlice)
    assert "protocol.run_bytes_max" in why(run(agent.where, pane(1), bytes_max=100))
    append(tmp_path / "new.log", [1_500])
    assert why(run(agent.where, pane(1))) == f"{tmp_path}/new.log is new to the agent"
    (tmp_path / "new.log").unlink()
    log.rename(was)
    assert why(run(agent.where, pane(1))) == f"{log}: No such file or directory"
    log.write_text(was.read_text())
    assert why(run(agent.where, pane(1))) == f"{log} is another file by now, or here"
    was.replace(log)
    with log.open("r+") as file:
        file.truncate(10)
    assert why(run(agent.where, pane(1))) == f"{log} was begun anew"
    agent.close()


def test_a_row_beyond_what_is_known_of_the_agents_clock_ends_a_run(tmp_path: Path) -> None:
    agent = stopped(tmp_path, [1_100])
    append(tmp_path / "0.log", [30_000 + 60_001])
    assert "ahead of what is known of the agent's clock" in why(run(agent.where, pane(1)))
    agent.close()


def test_what_was_open_before_a_restart_is_not_run(tmp_path: Path) -> None:
    agent = stopped(tmp_path, [1_100])
    again = agent.crashed()
    append(tmp_path / "0.log", [1_200])
    again.read()
    append(tmp_path / "0.log", [9_000])
    assert why(run(again.where, pane(1))) == "nobody knows from where"
    assert isinstance(run(again.where, pane(2)), RunSlice)
    again.close()


def test_an_agent_that_reads_otherwise_now_names_what_it_reads(tmp_path: Path) -> None:
    """What the answer made of its lines may be something else."""
    agent = stopped(tmp_path, [100, 200])
    append(tmp_path / "0.log", [1_100, 1_200, 9_000])
    answer = run(agent.where, pane(1))
    assert isinstance(answer, RunSlice)
    other = replace(agent, shared="as something else")
    other.read()
    assert other.answered((pane(1), answer.offsets)).counts == {"answered": 0, "late": 2}
    other.close()


def test_what_a_dropped_tally_had_counted_goes_on_and_its_snapshot_with_it(tmp_path: Path) -> None:
    agent = stopped(tmp_path, [100, 1_100])
    with (tmp_path / "0.log").open("a") as file:
        file.write("no line\n")
    append(tmp_path / "0.log", [9_000])
    answer = run(agent.where, pane(1))
    assert isinstance(answer, RunSlice)
    assert {row["rejected"] for row in decode(answer.counters).to_pylist()} == {0}
    agent.read()
    told = rejected(agent.outcomes)
    spans = [(one, answer.offsets) for one in range(pane(0), pane(8))]
    assert any(row.start <= pane(1) < row.end for row in agent.store.snapshots(FLOW.uid))
    agent.answered(*spans)
    assert all(row.end <= pane(0) for row in agent.store.snapshots(FLOW.uid))
    append(tmp_path / "0.log", [19_000])
    agent.read()
    assert (told, rejected(agent.outcomes[-1:])) == (1, 1)
    agent.close()


def rejected(outcomes: Sequence[Outcome]) -> int:
    """Lines that were no lines, in the counters of what was sealed."""
    counter_tables = [one.counters for outcome in outcomes for one in outcome.sealed if one.counters]
    return sum(row["rejected"] for one in counter_tables for row in decode(one).to_pylist())


def test_a_row_that_is_late_by_its_own_file_is_late_for_whoever_reads_it(tmp_path: Path) -> None:
    """Though the other file holds the pane open."""
    agent = stopped(tmp_path, [100, 6_500], [200])
    append(tmp_path / "0.log", [4_200, 9_000])
    append(tmp_path / "1.log", [4_300, 9_000])
    answer = run(agent.where, pane(4))
    assert isinstance(answer, RunSlice)
    agent.read()
    assert rows_of(answer) == agent.sealed()[pane(4)]
    assert (rows_of(answer)["rows"], agent.late) == (1, 1)
    agent.close()


def test_too_many_files_or_too_much_open_is_not_told(tmp_path: Path) -> None:
    agent = stopped(tmp_path, *([[1_100]] * (SOURCES_MAX + 1)))
    assert agent.where is not None
    assert agent.where.now is None
    agent.close()


def test_only_for_a_stream_that_it_shares_too() -> None:
    asked = Reexecute(flow=FLOW.uid, member=OF, pane=1, offsets=SourceOffsets(1, 0, ()), reading=NOWHERE)
    other = running.Running({"views": ("/srv/*/*.log",), "clicks": ()}, 1 << 20)
    answer = other.submit(Run(FLOW, asked, ROOT)).result().answer
    assert isinstance(answer, NotRun)
    assert answer.why == "this agent shares no files of the stream"
    other.close()


def test_what_the_lines_of_another_make_fail_ends_nobody(tmp_path: Path) -> None:
    """A sum of theirs may be beyond its type, say."""
    agent = stopped(tmp_path, [100])
    append(tmp_path / "0.log", [1_100, 9_000])
    where = agent.where
    assert where is not None
    offsets = where.offsets(pane(1))
    assert offsets is not None
    fragment = replace(FRAGMENT, map_sql="SELECT error('no') FROM rows", direct=None)
    asked = Reexecute(
        flow=FLOW.uid, member=OF, pane=pane(1), offsets=offsets, reading=where.reading or NOWHERE
    )
    answer = running.ran(
        Run(replace(FLOW, fragment=fragment), asked, ROOT), seen(asked.reading), 1 << 20
    ).answer
    assert isinstance(answer, NotRun)
    assert answer.why
    agent.close()


def test_another_column_with_the_event_time_is_another_reading() -> None:
    """What an agent reads by it after a restart has other numbers than what was run for it before."""
    told = [
        reading_of(StreamConfig("json", ("/a.log",), timestamp=column), WorkerSettings())
        for column in (None, "ts", "at")
    ]
    assert len({repr(one) for one in told}) == 3
