"""The client is light: what a command or a program that asks an agent does not need is not loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elf import native

ROOT = Path(__file__).parents[2]
OURS = {"agents", "elf.functions", "elf.job", "elf.ql", "elf.cbt", "overlay", "spark_backend"}
"""Rooms of ours that a client knows nothing of: a statement is a text to it."""
HEAVY = {
    "duckdb", "matplotlib", "mmh3", "nacl", "prometheus_client", "prompt_toolkit", "psutil",
    "pyarrow.compute", "pyspark", "scipy", "sortedcontainers", "sqlglot", "starlette", "structlog",
    "uvicorn", "yaml",
}  # fmt: skip
TOP = "from elf.cli.main import app; app({}, standalone_mode=False)"


def loaded(program: str) -> set[str]:
    """All modules of a fresh process that has run the program, whatever came of it."""
    tell = "import atexit, sys; atexit.register(lambda: print('\\n', *sys.modules, file=sys.stderr))\n"
    done = subprocess.run(
        [sys.executable, "-c", tell + program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    modules = set(done.stderr.splitlines()[-1].split())
    assert "sys" in modules, done.stderr
    return modules


def test_the_client_is_its_libraries_and_little_else() -> None:
    found = loaded("from elf.client import connect")
    assert "elf.client.client" in found
    assert not found & (OURS | HEAVY | {"rich", "typer"})
    ours = {name for name in found if name.partition(".")[0] == "elf"}
    assert {".".join(name.split(".")[:2]) for name in ours} == {
        "elf", "elf.addresses", "elf.batch", "elf.client", "elf.errors", "elf.fields", "elf.ipcsize",
        "elf.security", "elf.transport", "elf.wire",
    }  # fmt: skip


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["sql", "--help"], ["bench", "--help"]])
def test_help_loads_no_library_of_the_work(args: list[str]) -> None:
    found = loaded(TOP.format(args))
    assert "elf.cli.main" in found
    assert not found & (
        OURS | HEAVY | {"pyarrow", "zmq", "numpy", "msgspec", "asyncio", "rich", "elf.client"}
    )


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_statement_loads_what_a_client_and_its_printer_do(output: str) -> None:
    """Nobody is there, so it fails; by then it has done all but to print an answer."""
    sql = ["sql", "-e", "SHOW JOBS", "--connect", "127.0.0.1:1", "--output", output]
    found = loaded(TOP.format(sql))
    assert "elf.client.client" in found
    assert not found & (OURS | HEAVY)
    assert "rich" not in found


@pytest.mark.parametrize("command", ["shell", "tap", "top", "tree"])
def test_what_looks_at_a_fleet_is_as_light(command: str) -> None:
    found = loaded(f"import elf.cli.{command}")
    assert "elf.client.client" in found
    assert not found & (OURS | HEAVY)


def test_a_run_loads_an_agent_without_its_network(tmp_path: Path) -> None:
    """Neither sockets nor what people see of an agent, no client, no Spark, no laboratory; and no DuckDB for
    plain lines and plain groups, where the native part is there."""
    log = tmp_path / "log"
    log.write_text('{"ts":1700000000,"k":1}\n')
    found = loaded(TOP.format(["run", "--input", str(log), "-q", "SELECT COUNT(*) FROM x"]))
    assert {"agents.run", "sqlglot"} <= found
    assert ("duckdb" in found) == (native.library() is None)
    assert not found & {
        "agents.exposition", "agents.http", "agents.process", "agents.settings", "elf.client.client",
        "elf.client.connection", "elf.transport.zeromq", "lab.bench", "lab.generator", "matplotlib",
        "prometheus_client", "prompt_toolkit", "pyarrow.dataset", "pyarrow.fs", "pygments", "pyspark", "rich",
        "scipy", "spark_backend", "starlette", "uvicorn", "yaml", "zmq",
    }  # fmt: skip
