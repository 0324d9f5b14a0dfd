"""The shell, typed at through prompt_toolkit's own pipe input, against a stand-in agent."""

from __future__ import annotations

import asyncio
import io
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from elf.cli import shell
from elf.cli.errors import exit_status
from elf.client import connect
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
    return [m.sql for m in agent.got(Execute) if isinstance(m, Execute)]


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


async def test_keywords_jobs_and_streams_complete() -> None:
    async with fake_agent(answers) as agent, connect(agent.address) as client:
        names = await shell.known_names(client)
    assert names == ("busy", "clicks")
    completer = shell._completer(names)

    def completed(text: str) -> list[str]:
        return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]

    assert completed("sel") == ["SELECT"]
    assert completed("SUBSCRIBE bu") == ["busy"]


@pytest.mark.parametrize("word", ["help", "HELP;", "\\?", "?"])
def test_help_is_no_statement(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert asyncio.run(typed(f"{word}\rSHOW JOBS;\r\\q\r")) == ["SHOW JOBS;"]
    assert capsys.readouterr().out.count(shell.HELP) == 2
