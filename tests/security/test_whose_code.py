"""Whose code an agent runs: nobody's where the kernel cannot confine it, and what ``functions.allow`` says. A
real agent is not robbed by what it runs."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from elf.client.results import facts_of
from elf.errors import UserError
from elf.functions import landlock
from elf.functions.allowed import allowed, refusal
from elf.functions.function import Failed, UserFunction
from elf.functions.hosts import Hosts, Settings
from elf.functions.sandbox import Limits, Sandboxes
from elf.job.program.calls import Place
from elf.job.program.port import ProgramEvent, ProgramState, StartProgram
from elf.job.program.spec import ProgramSpec
from elf.ql.plan import Function
from tests.support.confined import needs_confinement
from tests.support.fleet import Fleet
from tests.support.waiting import eventually
from tests.support.watching import connected, create

BATCH = pa.RecordBatch.from_pydict({"x": [1]})


def test_a_kernel_that_cannot_confine_code_runs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the kernel says is changed here, since it cannot be taken from a kernel that has it."""
    monkeypatch.setattr(landlock, "version", lambda: 0)
    sandboxes = Sandboxes()
    made = UserFunction(
        sandboxes, Function("map", "def map(batch):\n    return batch\n", "f.py"), Limits(), lambda _: None
    )
    result = made(BATCH)
    assert isinstance(result, Failed)
    assert result.trouble == "refused"
    assert "has no Landlock" in result.text or sys.platform != "linux"
    assert "cannot be confined there" in refusal("anybody", "web-1")
    assert sandboxes._template._zygote is None


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_a_zygote_without_walls_ends_and_forks_nothing() -> None:
    """Where the kernel takes no ruleset though it said that it would: nothing runs, rather than freely."""
    text = (
        "import errno, socket\nfrom elf.functions import landlock, zygote\n"
        "def fails(*_): raise OSError(errno.EPERM, 'no')\nlandlock.restrict = fails\n"
        "ours, theirs = socket.socketpair()\nzygote.main(theirs, confined=True)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert b"PermissionError" in done.stderr


@needs_confinement
def test_the_setting_says_whose_code_runs() -> None:
    assert allowed("anybody", "web-1")("x") == ""
    assert (
        allowed("nobody", "web-1")("x") == "agent web-1 runs no users' code: functions.allow is nobody there"
    )
    signed = allowed("signed", "web-1")("x")
    assert signed.startswith("agent web-1 runs signed code alone (functions.allow is signed there): ")
    assert allowed("signed", "web-1", lambda text: "" if text == "x" else "nobody has signed it")("x") == ""
    assert "nobody has signed it" in allowed("signed", "web-1", lambda _: "nobody has signed it")("x")


def test_what_may_not_run_is_not_even_started(tmp_path: Path) -> None:
    """A function, which fails at once and without a search for a row, and a job in Python."""
    sandboxes, said = Sandboxes(), list[ProgramEvent]()
    refuses = allowed("nobody", "web-1")
    spec = Function("reduce", "def reduce(batch):\n    return batch\n", "f.py")
    made = UserFunction(sandboxes, spec, Limits(), print, tmp_path / "failed", allowed=refuses)
    result = made(BATCH)
    assert isinstance(result, Failed)
    assert result.text == "f.py: agent web-1 runs no users' code: functions.allow is nobody there"
    assert (result.trouble, result.row, result.kept, made.failures) == ("refused", None, None, 0)
    hosts = Hosts(said.append, lambda spec, line: None, Settings(allowed=refuses), sandboxes)
    program = ProgramSpec("job", "me", 1, "x = 1", "job.py", "J", 0, (), (), "s")
    hosts.perform(StartProgram(program, Place("web-1:7071", 0)))
    (state,) = said
    assert isinstance(state, ProgramState)
    assert (state.state, state.reason) == ("failed", refuses(""))
    hosts.close()
    assert sandboxes._template._zygote is None


THIEF = """
def map(batch):
    open({path!r}, "rb").read()
    return batch
"""
THIEF_JOB = """
from elf.job import Job
class Thief(Job):
    every = 0.2
    def on_timer(self):
        open({path!r}, "rb").read()
"""
SMUGGLER = """
from elf.job import Job
from elf.job.program.calls import ReplyOut, RouteOut, SendTo
class Smuggler(Job):
    every = 0.1
    def on_timer(self):
        for effect in (SendTo("127.0.0.1:{port}", b"loot"), ReplyOut("127.0.0.1:{port}|7", b"loot"),
                       ReplyOut("no token", b""), ReplyOut("|", b"")):
            self._host._put(effect)
"""
FORGER = """
from elf.job import Job
from elf.job.program.calls import RouteOut
class Forger(Job):
    every = 0.1
    def on_timer(self):
        self._host._put(RouteOut(b"short", b""))
"""
HONEST = "def map(batch):\n    return batch\n"


@needs_confinement
async def test_a_real_agent_is_not_robbed_and_one_that_runs_no_code_says_so(tmp_path: Path) -> None:
    """A function and a job in Python are after the state of the agent that runs them. Then an agent joins
    that runs nobody's code: who sends some is told which agent it is, and by which setting."""
    fleet = Fleet(tmp_path, 2)
    closed = fleet.agents.pop()
    closed.functions = {"allow": "nobody"}
    victim, function = fleet.agents[0], tmp_path / "f.py"
    alter = f"ALTER JOB popular SET FUNCTION map FROM '{function}'"
    refusal = "agent web-1 runs no users' code: functions.allow is nobody there"
    fleet.start()
    try:
        client = await connected(fleet, 0)
        fleet.begin_writing()
        await create(client)
        path = str(victim.folder / "data" / "elf.sqlite")
        assert Path(path).exists()
        function.write_text(THIEF.format(path=path))
        with pytest.raises(UserError, match=r"f\.py:3: PermissionError: .*elf\.sqlite"):
            await client.sql(alter)
        await client.submit(THIEF_JOB.format(path=path), "thief.py", "thief")

        async def reason() -> str:
            table = (await client.sql("SHOW JOBS")).table
            rows = [] if table is None else table.to_pylist()
            return next((row["reason"] for row in rows if row["job"] == "thief"), "")

        told = await eventually(reason, "the job has failed to steal", 20)
        assert "PermissionError" in told
        await client.sql("DROP JOB thief")

        # what a job has the agent send goes to agents, and to those who asked; nothing is believed
        with socket.create_server(("127.0.0.1", 0)) as outside:
            outside.settimeout(1.5)
            port = outside.getsockname()[1]
            await client.submit(SMUGGLER.format(port=port), "smuggler.py", "smuggler")
            await client.submit(FORGER, "forger.py", "forger")

            async def dropped() -> str:
                facts = facts_of(await client.sql("DESCRIBE smuggler"))
                counted = facts.get("counted at the master", "")
                return counted if "to no agent" in counted and "replies to nobody" in counted else ""

            await eventually(dropped, "the smuggler's messages are dropped", 20)
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(outside.accept)
        assert victim.process is not None
        assert victim.process.poll() is None
        await client.sql("DROP JOB smuggler; DROP JOB forger")
        function.write_text(HONEST)
        assert "is version" in (await client.sql(alter)).text
        await client.sql("ALTER JOB popular DROP FUNCTION map")

        closed.bootstrap = (victim.address,)
        closed.write_config()
        closed.log.touch()
        closed.fork()
        fleet.agents.append(closed)
        await (await connected(fleet, 1)).close()
        function.write_text(f"{HONEST}# another flow than before\n")
        with pytest.raises(UserError, match=refusal):
            await client.sql(alter)
        with pytest.raises(UserError, match=f"{refusal}; a job in Python needs all agents"):
            await client.submit(THIEF_JOB.format(path=path), "thief.py", "thief")
        await client.close()
        assert victim.process is not None
        assert victim.process.poll() is None
        assert "users' code" in victim.said()
    finally:
        fleet.stop()
