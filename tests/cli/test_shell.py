"""The shell, typed at through prompt_toolkit's own pipe input, against a stand-in agent."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from elf.cli import shell
from elf.cli.completing import Names, completer, completions, path_before
from elf.cli.errors import exit_status
from elf.cli.livetable import ScreenPrinter
from elf.client import Window, connect
from elf.wire.base import Message
from elf.wire.clients import Execute, Failed, Reply
from tests.support.fleet_of_one import fake_agent


def answers(message: Message) -> Iterable[Message]:
    if isinstance(message, Execute) and "BAD" in message.sql:
        yield Failed(request=message.request, text="unknown statement BAD (line 1, column 1)\n  BAD\n  ^")
    elif isinstance(message, Execute):
        yield Reply(request=message.request, text=f"did {' '.join(message.sql.split())}")


async def typed(text: str) -> list[str]:
    """Type into a shell until it ends; the statements that the agent got."""
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(text)
        async with fake_agent(answers) as agent, asyncio.timeout(10):
            assert await shell._shell(agent.address, "elf") == 0
    got = [m.sql for m in agent.got(Execute) if isinstance(m, Execute)]
    return [sql for sql in got if sql != "DESCRIBE clicks"]  # which the shell asks by itself


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


async def test_a_statement_ends_at_its_semicolon(capsys: pytest.CaptureFixture[str]) -> None:
    asked = await typed("SHOW\nJOBS\n;\n\\q\n")
    assert [" ".join(sql.split()) for sql in asked] == ["SHOW JOBS ;"]
    out = capsys.readouterr().out
    assert "connected to fake" in out
    assert "did SHOW JOBS ;" in out


async def test_an_error_has_its_caret_and_the_shell_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    asked = await typed("BAD; SHOW JOBS;\nDROP JOB x;\nquit\n")
    assert [sql.strip() for sql in asked] == ["BAD;", "DROP JOB x;"]
    said = capsys.readouterr()
    assert said.err == "elf: unknown statement BAD (line 1, column 1)\n  BAD\n  ^\n"
    assert "did DROP JOB x;" in said.out


async def test_ctrl_c_clears_and_ctrl_d_leaves() -> None:
    assert await typed("DROP JOB precious\n\x03SHOW JOBS;\n\x04") == ["SHOW JOBS;"]


async def piped(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """(status, statements that the agent got) of a shell that reads from a pipe."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    async with fake_agent(answers) as agent, asyncio.timeout(10):
        status = await asyncio.to_thread(exit_status, lambda: shell.run_shell(agent.address, "elf"))
    return status, [m.sql.strip() for m in agent.got(Execute) if isinstance(m, Execute)]


async def test_a_pipe_is_performed_to_its_last_statement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert await piped("SHOW\nJOBS; DROP JOB x", monkeypatch) == (0, ["SHOW\nJOBS;", "DROP JOB x"])
    assert capsys.readouterr().out == "did SHOW JOBS;\ndid DROP JOB x\n"
    assert await piped("SHOW JOBS;\n\\q\nDROP JOB x", monkeypatch) == (0, ["SHOW JOBS;"])
    assert await piped(" \n-- nothing\n", monkeypatch) == (0, [])
    capsys.readouterr()
    assert await piped("BAD; SHOW JOBS;", monkeypatch) == (1, ["BAD;"])
    assert capsys.readouterr().err == "elf: unknown statement BAD (line 1, column 1)\n  BAD\n  ^\n"


async def test_history_is_kept_for_the_user_alone(state: Path) -> None:
    await typed("SHOW JOBS;\n\\q\n")
    path = state / "elf" / "history"
    assert "+SHOW JOBS;" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0


NAMES = Names(
    columns={"clicks": ["product", "user.id"], "access": ["c_ip", "status"]},
    jobs=["busy", "clients"],
    commands=("\\d", "\\dj", "\\timing"),
)


async def test_the_shell_learns_what_completes_from_its_agent() -> None:
    async with fake_agent(answers) as agent, connect(agent.address) as client:
        begun = shell.Shell(client)
        await begun.learn()
    assert (begun.names.jobs, begun.names.streams) == (["busy"], ["clicks"])


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("sel", "", ["SELECT"]),
        ("SUBSCRIBE b", "", ["busy"]),
        ("DROP JOB ", "", ["busy", "clients"]),
        ("CREATE JOB b", "", []),
        ("SELECT * FROM c", "", ["clicks"]),
        ("SELECT * FROM JOB c", "", ["clients"]),
        ("SELECT pro", " FROM clicks", ["product", "PRODUCTION"]),
        ("SELECT COUNT(*), user.", " FROM clicks", ["user.id"]),
        ("SELECT c_", " FROM clicks", []),
        ("SELECT x FROM access WHERE sta", "", ["status"]),
        ("SELECT x FROM access GROUP ", "", ["BY"]),
        ("SHOW JOBS; SUBSCRIBE cl", "", ["clients"]),
        ("DESCRIBE cl", "", ["clients", "clicks"]),
        ("SHOW st", "", ["STREAMS"]),
        ("EXPLAIN ro", "", ["ROUTES"]),
        ("\\d", "", ["\\d", "\\dj"]),
        ("\\d cl", "", ["clients", "clicks"]),
        ("\\timing o", "", ["on", "off"]),
        ("SELECT 'FROM c", "", []),
    ],
)
def test_what_may_come_next_completes(before: str, after: str, found: list[str]) -> None:
    assert completions(before, after, NAMES) == found
    if not after:
        made = completer(NAMES).get_completions(Document(before), CompleteEvent())
        assert [before[: len(before) + one.start_position] + one.text for one in made] == [
            before[: len(before) - len(before.rpartition(" ")[2].rpartition("'")[2])] + one for one in found
        ]


def test_files_complete_where_one_is_due(tmp_path: Path) -> None:
    (tmp_path / "geo.py").touch()
    (tmp_path / "gone").mkdir()
    before = f"CREATE AGGREGATE geo FROM '{tmp_path}/g"
    made = completer(NAMES).get_completions(Document(before), CompleteEvent())
    assert [one.text for one in made] == [f"{tmp_path}/geo.py", f"{tmp_path}/gone/"]
    assert path_before("SELECT x \\g out") == "out"
    assert path_before("SELECT out") is None


async def test_the_history_has_whole_statements(state: Path) -> None:
    await typed("SHOW\nJOBS;\n\\q\n")
    assert "+SHOW\n+JOBS;\n" in (state / "elf" / "history").read_text()
    assert await typed("\x1b[A\x1b[A\x1b[A\r\x04") == ["SHOW\nJOBS;"]  # up: \q, JOBS;, then SHOW


async def test_g_performs_a_statement_into_a_file_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "jobs.csv"
    asked = await typed(f"SHOW JOBS \\g {out}\n\\g\n\\g /none/such\n\\i {out}\n\\q\n")
    assert asked[:2] == ["SHOW JOBS", "SHOW JOBS"]
    assert "did SHOW JOBS" in capsys.readouterr().out


async def test_commands_describe_and_switch(capsys: pytest.CaptureFixture[str]) -> None:
    asked = await typed("\\d\n\\d busy\n\\dj\n\\timing\nSHOW JOBS;\n\\timing off\n\\live maybe\n\\x\n\\q\n")
    assert asked == ["SHOW STREAMS;", "SHOW JOBS;", "DESCRIBE busy;", "SHOW JOBS;", "SHOW JOBS;"]
    said = capsys.readouterr()
    assert "timing is on\n" in said.out
    assert "\nTime: " in said.out
    assert "timing is off\n" in said.out
    assert said.err == (
        "elf: \\live maybe: on or off\nelf: there is no command \\x; \\? lists those that there are\n"
    )


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def window(end: int, rows: int, name: str = "busy") -> Window:
    start, stop = (datetime(2026, 1, 1, 0, 0, at, tzinfo=UTC) for at in (end - 1, end))
    table = pa.table({"n": list(range(rows))})
    return Window("00.1", name, 1, "a:1", start, stop, 0, {}, table)


def test_windows_are_drawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 12)))
    out = Screen()
    screen = ScreenPrinter(out)
    for end in (1, 2):
        screen.windows([window(end, 2)])
    first, again = out.getvalue().split("\x1b[5F\x1b[J")
    assert [first.count("\n"), again.count("\n")] == [5, 5]
    screen.windows([window(3, 50)])
    assert "… 43 more lines" in out.getvalue()
    screen.beside()
    screen.windows([window(4, 1)])
    assert out.getvalue().count("\x1b[J") == 2
    below = Screen()
    ScreenPrinter(below, live=False).windows([window(1, 2), window(2, 2)])
    assert "\x1b[J" not in below.getvalue()


def test_long_tables_are_paged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 12)))
    monkeypatch.setenv("PAGER", f"sh -c 'cat > {tmp_path}/paged'")
    out = Screen()
    ScreenPrinter(out).table(pa.table({"n": list(range(50))}))
    assert out.getvalue() == ""
    assert (tmp_path / "paged").read_text().split()[-1] == "49"
    ScreenPrinter(out).table(pa.table({"n": [1]}))
    ScreenPrinter(out, pages=False).table(pa.table({"n": list(range(50))}))
    assert out.getvalue().count("\n") > 50


@pytest.mark.parametrize("word", ["help", "HELP;", "\\?", "?"])
def test_help_is_no_statement(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(typed(f"{word}\rSHOW JOBS;\r\\q\r")) == ["SHOW JOBS;"]
    assert capsys.readouterr().out.count(shell.HELP) == 2
