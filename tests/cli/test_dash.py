"""``elf dash``: what is on its screen, and what of a job it shows."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec
import pyarrow as pa
import pytest

from elf.cli.dash import Dash, Shown, bars, screen, watch
from elf.cli.printing import console
from elf.cli.top import Round, round_of
from elf.client import Window, connect
from elf.wire.base import Message
from elf.wire.clients import AgentStats, Call, Execute, Failed, FleetStats, Reply
from tests.support.fleet_of_one import fake_agent

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AGENTS = FleetStats(2, tuple(AgentStats(f"web-{n}", f"10.0.0.1:{n}", ("access",), None) for n in range(3)))


def round_() -> Round:
    return round_of(AGENTS, None, NOON)


def drawn(dash: Dash, width: int, height: int | None) -> list[str]:
    out = io.StringIO()
    shown = console(out)
    shown.width = width
    shown.print(screen(dash, round_(), width, height))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def window(rows: int, reported: int = 3) -> Window:
    status: dict[str, object] = {"expected": 3, "reported": reported, "missing": ["web-2"][: 3 - reported]}
    return Window("00.1", "busy", 1, "a:1", NOON, NOON, 0, status, pa.table({"hits": list(range(rows))}))


def test_agents_are_above_and_jobs_below_as_high_as_the_screen() -> None:
    dash = Dash({"busy": Shown(window(50)), "errors": Shown(None, "there is no job errors")})
    dash.rates.extend([0.0, 7.0])
    for width, beside in ((120, True), (80, False)):
        lines = drawn(dash, width, 40)
        assert len(lines) <= 40
        titles = [line for line in lines if "busy  2026-01-01T12:00:00" in line]
        assert [("errors" in line) for line in titles] == [beside]
        text = "\n".join(lines)
        assert "there is no job errors" in text
        assert "more rows" in text
        assert "rows/s ▁█ 7" in text
        assert "3 agents (3 without an answer), 2 jobs" in text
    assert "web-2 missing" in "\n".join(drawn(Dash({"busy": Shown(window(2, 2))}), 100, None))
    assert "no rows" in "\n".join(drawn(Dash({"busy": Shown(window(0))}), 100, None))


@pytest.mark.parametrize(("values", "line"), [([], ""), ([0, 0], "▁▁"), ([1, 2, 4, 8], "▂▃▅█")])
def test_the_highest_bar_is_a_line_high(values: list[float], line: str) -> None:
    assert bars(values) == line


async def test_a_job_that_cannot_be_read_does_not_end_it(capsys: pytest.CaptureFixture[str]) -> None:
    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Execute):
            yield Failed(request=message.request, text="there is no job nothing")
        elif isinstance(message, Call) and message.verb == "fleet":
            yield Reply(request=message.request, body=msgspec.json.encode(AGENTS))

    async with fake_agent(answers) as agent, connect(agent.address) as client:
        await watch(client, ["nothing"], 0.1, 2)
    out = capsys.readouterr().out
    assert out.count("there is no job nothing") == 2
    assert max(map(len, out.splitlines())) <= 120
