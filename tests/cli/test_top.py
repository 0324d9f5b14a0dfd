"""``elf top``: what it makes of the agents' answers, and what fits on a screen."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import pytest

from elf.cli.numbers import number, size
from elf.cli.printing import console
from elf.cli.top import Round, head, picture, round_of
from elf.wire.base import Message
from elf.wire.clients import AgentStats, Call, Failed, FleetStats, Reply, Stats, StreamStats
from tests.support.commands import UNREACHABLE, Here, elf_beside
from tests.support.fleet_of_one import fake_agent
from tests.support.terminal import BACK, HOME, OTHER_SCREEN, plain, watch

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def stats(rows: int, at_s: float, incarnation: int = 1, **others: int) -> Stats:
    stream = StreamStats("access", rows, rows * 100, late=3, rejected=others.get("rejected", 0), shed=2)
    return Stats(
        incarnation=incarnation,
        clock_us=int(at_s * 1e6),
        state="live",
        streams=(stream, StreamStats("errors", rows=1, backlog_bytes=2048)),
        jobs=1,
        flows=2,
        windows=others.get("windows", 0),
        retained=0,
        resident_bytes=150 << 20,
        cpu_us=others.get("cpu_us", 0),
    )


def agent(name: str, port: int, known: Stats | None) -> AgentStats:
    return AgentStats(name, f"10.0.0.1:{port}", ("access", "errors"), known)


def fleet(*agents: AgentStats) -> FleetStats:
    return FleetStats(2, agents)


def looked(now: FleetStats, before: FleetStats | None = None) -> Round:
    return round_of(now, before, NOON)


def drawn(one: Round, width: int, height: int | None = None) -> list[str]:
    out = io.StringIO()
    console(out).print(picture(one, width, height))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_rates_are_by_the_clock_of_the_agent() -> None:
    before = fleet(agent("web-1", 1, stats(1_000, 50)))
    now = fleet(agent("web-1", 1, stats(1_500, 52, windows=3, cpu_us=500_000)))
    (row,) = looked(now, before).agents
    assert (row.rows_per_sec, row.bytes_per_sec, row.windows_per_sec, row.cpu) == (250, 25_000, 1.5, 0.25)
    assert (row.late, row.shed, row.jobs, row.memory_bytes, row.backlog_bytes) == (3, 2, 1, 150 << 20, 2048)


@pytest.mark.parametrize("before", [None, stats(5_000, 40, incarnation=0), stats(1_500, 52)])
def test_who_has_answered_once_or_was_started_anew_has_no_rates(before: Stats | None) -> None:
    one = looked(fleet(agent("web-1", 1, stats(1_500, 52))), fleet(agent("web-1", 1, before)))
    assert (one.agents[0].rows_per_sec, one.agents[0].cpu, one.rows_per_sec) == (None, None, None)
    assert one.agents[0].late == 3


def test_who_reads_most_is_first_and_who_does_not_answer_is_there() -> None:
    before = fleet(*(agent(f"web-{n}", n, stats(0, 0)) for n in (5, 4, 3, 2, 1)))
    rows = {5: 10, 4: 30, 3: 10, 1: 0}
    now = fleet(*(agent(f"web-{n}", n, stats(rows[n], 1) if n in rows else None) for n in (5, 4, 3, 2, 1)))
    one = looked(now, before)
    assert [row.agent for row in one.agents] == ["web-4", "web-3", "web-5", "web-1", "web-2"]
    assert (one.agents[-1].state, one.agents[-1].rows_per_sec, one.agents[-1].jobs) == (
        "no answer",
        None,
        None,
    )
    assert (one.silent, one.rows_per_sec, one.bytes_per_sec) == (1, 50, 5_000)


def test_the_head_says_what_the_fleet_does() -> None:
    before = fleet(agent("a", 1, stats(0, 0)), agent("b", 2, None))
    now = fleet(agent("a", 1, stats(12_345, 1, windows=1)), agent("b", 2, None))
    assert head(looked(now, before)).plain == (
        "2 agents (1 without an answer), 2 jobs, 12,345 rows/s, 1.2 MiB/s, 1 windows/s, 12:00:00 UTC"
    )
    assert head(looked(fleet(agent("a", 1, stats(0, 0))))).plain == "1 agent, 2 jobs, 12:00:00 UTC"
    stopped = agent("a", 1, msgspec.structs.replace(stats(0, 0), outputs_stopped=2))
    said = "1 agent, 2 jobs (2 of their outputs stopped: SHOW OUTPUTS), 12:00:00 UTC"
    assert head(looked(fleet(stopped))).plain == said


def test_columns_go_where_the_screen_is_narrow_and_rows_where_it_is_low() -> None:
    before = fleet(*(agent(f"web-{n}", n, stats(0, 0)) for n in range(9)))
    now = fleet(*(agent(f"web-{n}", n, stats(100 * n, 1)) for n in range(8)), agent("web-8", 8, None))
    one = looked(now, before)
    assert drawn(one, 100, 8)[2:] == [
        "agent  address     state      rows/s   bytes/s  backlog  late  rejected  shed  jobs  cpu   memory",
        "─────────────────────────────────────────────────────────────────────────────────────────────────",
        "web-7  10.0.0.1:7  live          700  68.4 KiB  2.0 KiB     3         0     2     1  0 %  150 MiB",
        "web-6  10.0.0.1:6  live          600  58.6 KiB  2.0 KiB     3         0     2     1  0 %  150 MiB",
        "web-5  10.0.0.1:5  live          500  48.8 KiB  2.0 KiB     3         0     2     1  0 %  150 MiB",
        "… and 6 more",
    ]
    assert drawn(one, 120)[2].split()[:3] == ["agent", "address", "streams"]
    names = "agent state rows/s bytes/s backlog late rejected jobs cpu memory"
    assert drawn(one, 80)[2].split() == names.split()
    assert drawn(one, 80)[-2].split() == ["web-8", "no", "answer"]
    assert drawn(one, 40)[2].split() == ["agent", "state", "rows/s", "late", "cpu"]
    for width in range(40, 140):
        assert max(map(len, drawn(one, width)[2:])) <= width


def test_values_that_fit_no_column_have_a_column_where_there_are_any() -> None:
    one = looked(fleet(agent("a", 1, stats(0, 0))))
    assert "uncast" not in drawn(one, 200)[2]
    (row,) = one.agents
    some = msgspec.structs.replace(one, agents=(msgspec.structs.replace(row, uncast=1_234),))
    assert "uncast" in drawn(some, 200)[2]
    assert "1,234" in drawn(some, 200)[4]


def test_numbers_for_people() -> None:
    numbers = [number(n) for n in (None, 0, 0.5, 9.94, 10.4, 1234567.8)]
    assert numbers == ["", "0", "0.5", "9.9", "10", "1,234,568"]
    sizes = [size(n) for n in (None, 0, 1023, 1024, 102_400, 5 << 20, 3 << 30, 5 << 40)]
    assert sizes == ["", "0 B", "1023 B", "1.0 KiB", "100 KiB", "5.0 MiB", "3.0 GiB", "5,120.0 GiB"]


# -- the command ---------------------------------------------------------------------------------------------


@dataclass
class Answers:
    """Two agents, one of them silent; the other reads 1,000 rows a second by its own clock."""

    asked: list[str] = field(default_factory=list)

    def __call__(self, message: Message) -> Iterable[Message]:
        if not isinstance(message, Call):
            return []
        self.asked.append(message.verb)
        known = stats(1_000 * len(self.asked), len(self.asked))
        body = msgspec.json.encode(fleet(agent("web-1", 1, known), agent("web-2", 2, None)))
        return [Reply(request=message.request, body=body)]


async def test_rounds_are_written_one_below_the_other_with_rates_from_the_first() -> None:
    answers = Answers()
    async with fake_agent(answers) as asked:
        look = ("top", "--every", "0.1", "--connect", asked.address)
        table = await elf_beside(*look, "--rounds", "2")
        assert len(answers.asked) == 3
        rows = await elf_beside(*look, "--rounds", "3", "--output", "json")
    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.count("1,000 rows/s") == 2
    assert "\x1b" not in table.stdout
    found = [json.loads(line) for line in rows.stdout.splitlines()]
    assert [one["rows_per_sec"] for one in found] == [1000.0] * 3
    assert [(one["agent"], one["state"]) for one in found[0]["agents"]] == [
        ("web-1", "live"),
        ("web-2", "no answer"),
    ]
    assert set(answers.asked) == {"fleet"}


@pytest.mark.parametrize(("columns", "narrow"), [(80, True), (120, False)])
async def test_on_a_terminal_it_is_drawn_in_place_until_ctrl_c_which_leaves_it_clean(
    columns: int, narrow: bool
) -> None:
    async with fake_agent(Answers()) as asked:
        args = ["top", "--every", "0.2", "--connect", asked.address]
        status, text = await asyncio.to_thread(watch, args, columns, 10, lambda text: text.count(HOME) > 3)
    assert status == 0
    assert text.startswith(OTHER_SCREEN)
    assert text.rstrip().endswith(BACK)
    pictures = [plain(one).splitlines() for one in text.split(HOME)[2:]]
    assert ("address" not in pictures[0][2]) == narrow
    assert "1,000 rows/s" not in pictures[0][0]
    assert "1,000 rows/s" in pictures[1][0]
    assert all(len(line) <= columns for one in pictures[:-1] for line in one)


async def test_an_agent_of_before_that_does_not_know_the_question() -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Call):
            yield Failed(request=message.request, text="this agent does not know the call fleet")

    async with fake_agent(answers) as asked:
        done = await elf_beside("top", "--connect", asked.address)
    assert (done.returncode, done.stderr) == (1, "elf: this agent does not know the call fleet\n")


def test_what_cannot_be_done(here: Here) -> None:
    done = here("top", "--connect", "127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"elf: {UNREACHABLE}\n")
    for wrong in (["--every", "0"], ["--every", "often"], ["--rounds", "0"], ["--output", "csv"]):
        done = here("top", *wrong)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"elf: invalid value for '{wrong[0]}': ")
