"""The command as a person runs it: what goes where, how it ends, and what it says when it can't."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from agents.config import AgentConfig
from elf import __version__
from elf.batch import encode
from elf.cli.ask import setting
from elf.cli.options import DEFAULT_ADDRESS
from elf.errors import UserError
from elf.job.program.values import pack_value
from elf.wire.base import Message
from elf.wire.clients import Call, Cancel, Execute, Failed, Published, Reply
from tests.support.commands import ELF, UNREACHABLE, Here, elf, elf_beside
from tests.support.fleet_of_one import fake_agent, window_result
from tests.support.waiting import eventually, wait_until

COMMANDS = "run sql shell jobs members streams top tap tree compare leave demo generate bench sim"


def test_version() -> None:
    assert elf("--version").stdout == f"elf {__version__}\n"


def test_the_default_address_is_that_of_an_agent() -> None:
    assert AgentConfig().listen == DEFAULT_ADDRESS


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from elf.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pyarrow', 'duckdb', 'zmq', 'sqlglot', 'rich', 'numpy', 'pyspark'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == ""
    for name in [
        "run",
        "sql",
        "shell",
        "jobs",
        "members",
        "streams",
        "top",
        "tap",
        "tree",
        "compare",
        "leave",
        "demo",
        "generate",
        "bench",
        "sim",
    ]:
        assert re.search(rf"^  {name} ", out, re.MULTILINE), name


def test_a_setting_is_a_python_literal_or_a_text() -> None:
    assert [setting(text) for text in ("every=2.5", "by=user.name", "where=a = 'b'", "tags=['x']")] == [
        ("every", 2.5),
        ("by", "user.name"),
        ("where", "a = 'b'"),
        ("tags", ["x"]),
    ]
    for wrong in ("every", "=3", "a b=3"):
        with pytest.raises(UserError, match="--set wants NAME=VALUE, not"):
            setting(wrong)


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (
            ["run", "-q", "SELECT 1"],
            1,
            "give the log files to read: --input PATH... or --stream NAME=PATH...",
        ),
        (["run", "-q", "x", "--input"], 1, "--input needs at least one value"),
        (
            ["run", "-q", "x", "--input", "/nope/a.log"],
            1,
            "cannot read /nope/a.log: no such file or directory",
        ),
        (["run", "-q", "x", "--input", "/"], 1, "cannot read /: it is a folder; name the files in it"),
        (["run", "-q", "x", "--stream", "a b"], 1, "--stream wants NAME=PATH, not 'a b'"),
        (["run", "-f", "/nope.sql", "--input", "x"], 1, "cannot read /nope.sql: no such file or directory"),
        (["run", "--input", "x"], 1, "give exactly one of -q SQL and -f FILE"),
        (["sql"], 1, "give exactly one of SQL, -e SQL and -f FILE"),
        (["sql", "SHOW JOBS", "-e", "SHOW JOBS"], 1, "give exactly one of SQL, -e SQL and -f FILE"),
        (["sql", "-e", " ; -- nothing"], 1, "nothing to do: there is no statement"),
        (["jobs", "--connect", "nowhere"], 1, "'nowhere' is not host:port"),
        (["leave", "--connect", "127.0.0.1:1"], 1, UNREACHABLE),
        (["compare", "busy", "--connect", "127.0.0.1:1"], 69, UNREACHABLE),
        (["compare", "busy", "--follow", "--connect", "127.0.0.1:1"], 69, UNREACHABLE),
        (
            ["compare", "busy", "--from", "soon"],
            69,
            "--from soon: give '-6 hours', 10m, 2d, today, yesterday, 2026-01-31 or 2026-01-31T12:00 (UTC)",
        ),
        (["compare", "busy", "--from", "1h", "--to", "2h"], 69, "--from 1h is not before --to 2h"),
        (
            ["compare", "busy", "--report", "/nope/x.html"],
            69,
            "--report /nope/x.html: there is no folder /nope",
        ),
        (["compare", "busy", "--rounds", "3"], 69, "--rounds, --metrics and --notify go with --follow"),
        (
            ["compare", "busy", "--follow", "--every", "0"],
            69,
            "--every 0: give a time such as 30s or 5m, 1s at least",
        ),
        (
            ["compare", "busy", "--follow", "--notify", "hooks"],
            69,
            "--notify hooks: give the URL of a web server, such as https://hooks.example.com/elf",
        ),
        (["generate", "clicks", "--out", "/nope/x"], 1, "cannot write /nope/x: no such file or directory"),
        (
            ["generate", "clicks", "--out", "-", "--start", "noon"],
            1,
            "--start wants a time such as 2026-01-01T00:00:00Z, not 'noon'",
        ),
        (
            ["generate", "clicks", "--out", "-", "--seconds", "3"],
            1,
            "--seconds needs --rate; without it say how many lines with --rows",
        ),
        (["tree", "busy", "--plot", "/nope/x.png"], 1, "no folder /nope"),
        (["sim", "overlay", "--plot", "x.jpg"], 1, "--plot writes .png or .svg, not .jpg"),
        (
            ["sim", "overlay", "--churn", "60", "--model"],
            1,
            "--churn needs the protocol: the static model is a ring at rest; leave out --model",
        ),
        (
            ["sim", "overlay", "--loss", "0.1"],
            1,
            "--lifetimes, --seconds, --lookups, --loss: they are for --churn; give it too",
        ),
        (["sim", "overlay", "--churn", "60", "--nodes", "1"], 1, "--churn needs --nodes of at least 2"),
        (
            ["sim", "overlay", "--partition", "9", "--nodes", "1"],
            1,
            "--partition needs --nodes of at least 2",
        ),
        (
            ["sim", "overlay", "--plot", "x.png", "--jobs", "0"],
            1,
            "--plot draws trees: give --jobs at least 1",
        ),
        (
            ["sim", "overlay", "--leaf-set", "7"],
            1,
            "--leaf-set 7: leaf_set_size must be even: half of it stands on each side",
        ),
        (
            ["sim", "overlay", "--model", "--crash", "0.1"],
            1,
            "--crash needs the protocol: the static model is a ring at rest; leave out --model",
        ),
        (["frobnicate"], 2, "no such command 'frobnicate' (see --help)"),
        (
            ["generate", "foo", "--out", "x"],
            2,
            "invalid value for 'kind': 'foo' is not one of 'clicks', 'access', 'posts' (see --help)",
        ),
        (
            ["sql", "-e", "x", "--windows", "x"],
            2,
            "invalid value for '--windows': 'x' is no whole number (see --help)",
        ),
        (
            ["generate", "clicks", "--out", "x", "--rows", "-1"],
            2,
            "invalid value for '--rows': -1 is not in the range x>=0 (see --help)",
        ),
        (["compare"], 64, "missing argument 'JOB' (see --help)"),
        (["offline", "backfill"], 1, "say which job, or -q with a SELECT … SINCE: one of both"),
    ],
)
def test_every_failure_is_one_clear_line(args: list[str], status: int, message: str, here: Here) -> None:
    done = here(*args)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", f"elf: {message}\n")


def test_a_value_out_of_range_is_one_line_too() -> None:
    done = elf("run", "-q", "x", "--agents", "0")
    assert done.returncode == 2
    assert done.stderr.startswith("elf: invalid value for '--agents': ")
    assert done.stderr.count("\n") == 1


PARTLY = (
    "elf: busy  2026-11-21T02:00:00.000Z … 2026-11-21T02:00:05.000Z: 6 of 7 agents, shop-3 missing, 1 late"
)
"""What is said of the first window of ``answers``."""


async def test_connect_may_come_from_the_environment() -> None:
    done = await asyncio.to_thread(elf, "jobs", ELF_CONNECT="127.0.0.1:1")
    assert "127.0.0.1:1:" in done.stderr


async def test_so_may_the_cluster() -> None:
    """By a variable of the commands; what an agent reads counts where that is not set."""
    async with fake_agent(answers, cluster="west") as agent:
        args = ("members", "--connect", agent.address, "--output", "csv")
        for env in (
            {"ELF_CLUSTER": "west", "ELF_CLUSTER_NAME": "east"},
            {"ELF_CLUSTER_NAME": "west"},
        ):
            done = await asyncio.to_thread(elf, *args, **env)
            assert (done.stdout.splitlines()[0], done.stderr) == ("agent,address", "")


def answers(message: Message) -> Iterable[Message]:
    if isinstance(message, Call) and message.verb == "tree":
        edges = [
            {"name": "b", "address": "h:2", "parent": "h:1", "sealed_us": 1},
            {"name": "c", "address": "h:3", "parent": "h:2", "sealed_us": None},
        ]
        flow = {
            "flow": "f00dcafe0123",
            "stream": "s",
            "root": "h:1",
            "readers": ["busy", "lazy"],
            "edges": edges,
        }
        body = json.dumps({"job": message.argument, "master": "h:1", "flows": [flow]})
        yield Reply(request=message.request, body=body.encode())
    elif isinstance(message, Execute) and message.sql.strip(" ;") == "SHOW MEMBERS":
        members = pa.table({"agent": ["a", "b"], "address": ["h:1", "h:2"]})
        yield Reply(request=message.request, payload=encode(members))
    elif isinstance(message, Execute) and "SUBSCRIBE" in message.sql:
        yield Published(request=message.request, result=window_result(0))
        yield Published(request=message.request, result=window_result(5))
    elif isinstance(message, Execute) and "BAD" in message.sql:
        yield Failed(request=message.request, text="unknown statement BAD (line 2, column 1)\n  BAD\n  ^")
    elif isinstance(message, Execute):
        yield Reply(request=message.request, text=f"did: {message.sql.strip()}")


async def test_sql_performs_a_file_statement_by_statement_until_one_fails(tmp_path: Path) -> None:
    file = tmp_path / "jobs.sql"
    file.write_text("CREATE JOB a AS SELECT 1;\nBAD; DROP JOB a;")
    async with fake_agent(answers) as agent:
        done = await elf_beside("sql", "-f", str(file), "--connect", agent.address)
    assert done.stdout == "did: CREATE JOB a AS SELECT 1;\n"
    assert done.stderr == "elf: unknown statement BAD (line 2, column 1)\n  BAD\n  ^\n"
    assert done.returncode == 1
    assert [m.sql for m in agent.got(Execute) if isinstance(m, Execute)][1] == "\nBAD;"


async def test_a_subscription_ends_after_its_windows() -> None:
    async with fake_agent(answers) as agent:
        done = await elf_beside(
            "sql", "-e", "SUBSCRIBE busy", "--windows", "2", "--output", "json", "--connect", agent.address
        )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["clicks"] for row in rows] == [0, 1, 50, 51]
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        PARTLY,
        PARTLY.replace("00:05", "00:10").replace("00:00.", "00:05.", 1),
    ]


async def test_a_program_reads_nothing_but_rows() -> None:
    asked = ("sql", "-e", "SHOW JOBS; SHOW MEMBERS", "--output", "json")
    async with fake_agent(answers) as agent:
        done = await elf_beside(*asked, "--connect", agent.address)
    assert [json.loads(line)["agent"] for line in done.stdout.splitlines()] == ["a", "b"]
    assert (done.returncode, done.stderr) == (0, "did: SHOW JOBS;\n")


async def test_a_statement_needs_no_option() -> None:
    """And rows for people are followed by what they cover."""
    async with fake_agent(answers) as agent:
        done = await elf_beside("sql", "SUBSCRIBE busy", "--windows", "1", "--connect", agent.address)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert (lines[0].split()[0], lines[-1]) == ("busy", PARTLY.partition(".000Z: ")[2])


async def test_ctrl_c_ends_a_subscription_and_tells_the_agent() -> None:
    async with fake_agent(answers) as agent:
        process = await asyncio.create_subprocess_exec(
            *ELF, "sql", "-e", "SUBSCRIBE busy", "--output", "json", "--connect", agent.address,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, stderr = await process.communicate()
        assert process.returncode == 0
        assert stderr.decode().splitlines()[0] == PARTLY
        await eventually(lambda: agent.got(Cancel), "it is cancelled", 5)
        assert agent.got(Cancel)


async def test_a_tree_is_drawn_and_counted() -> None:
    async with fake_agent(answers) as agent:
        done = await elf_beside("tree", "busy", "--connect", agent.address)
    assert done.stdout.splitlines() == [
        "job busy",
        "flow f00dcafe over s, read by busy, lazy",
        "a (h:1)  master",
        "└── b (h:2)",
        "    └── c (h:3)  nothing sealed yet",
        "2 members, depth 2, fan-out 1",
    ]


@pytest.mark.parametrize("suffix", ["png", "svg"])
async def test_a_tree_is_drawn_into_a_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"tree.{suffix}"
    async with fake_agent(answers) as agent:
        done = await elf_beside("tree", "busy", "--connect", agent.address, "--plot", str(path), "--json")
    assert (done.returncode, json.loads(done.stdout)["master"]) == (0, "h:1")
    assert path.read_bytes()[:5] == (b"\x89PNG\r" if suffix == "png" else b"<?xml")


def test_output_into_a_closed_pipe_ends_quietly() -> None:
    generate = subprocess.Popen(
        [*ELF, "generate", "clicks", "--out", "-", "--rows", "200000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert generate.stdout is not None
    generate.stdout.readline()
    generate.stdout.close()
    assert generate.wait(30) == 1
    assert generate.stderr is not None
    assert generate.stderr.read() == b""
    generate.stderr.close()


def test_a_live_log_ends_with_a_whole_line_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    process = subprocess.Popen([*ELF, "generate", "access", "--out", str(path), "--rate", "5000"])
    wait_until(lambda: path.exists() and path.stat().st_size >= 50_000, "lines", 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_says_so_in_a_line(number: signal.Signals, here: Here, tmp_path: Path) -> None:
    """While it says its windows, of which there are more than a pipe holds."""
    query = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 DAYS SLIDE 20 SECONDS"
    lines = tmp_path / "clicks.json"
    assert here("generate", "clicks", "--out", str(lines), "--rows", "2000").returncode == 0
    with subprocess.Popen(
        [*ELF, "run", "--stream", f"clicks={lines}", "-q", query],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=_with_ctrl_c,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline(), "the first window"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (130, b"elf: interrupted: this is not the whole answer\n")


def _with_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_overlay_simulation_ends_with_one_json_object(here: Here) -> None:
    done = here("sim", "overlay", "--nodes", "20", "--keys", "30", "--partition", "10", "--json")
    facts = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, facts["ok"], facts["nodes"], facts["crashed"]) == (0, True, 20, 4)
    assert facts["hops_limit"] == 3
    assert facts["lookups"] == {"total": 30 + 2 * 100 + 30 + 30, "wrong": 0, "lost": 0, "doubled": 0}
    assert facts["hops"].keys() == {"mean", "p999", "max"}
    assert facts["balance"] == {}
    assert 0 < facts["recovery_seconds"]["p50"] <= facts["recovery_seconds"]["p99"] < 10
    assert facts["upkeep"]["messages_per_s"] * 30 < facts["upkeep"]["bytes_per_s"]
    assert facts["tree"].keys() == {"depth_mean", "depth_max", "fanout_max"}
    assert facts["jobs"] == {"placed": 100, "unplaced": 0, "ungrown": 0, "unrepaired": 0}
    assert facts["partition"]["seconds"] == 10
    assert 0 < facts["partition"]["one_ring_seconds"] <= facts["partition"]["trees_seconds"]["p99"] < 10


def test_trees_keep_to_the_regions_of_a_simulated_ring(here: Here) -> None:
    """Of tree links that are drawn at random, three in four cross four regions."""
    small = ("--nodes", "64", "--keys", "5", "--jobs", "8", "--crash", "0")
    done = here("sim", "overlay", *small, "--regions", "4", "--json")
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["ok"]
    assert 0 < facts["far_links"] < 0.4
    assert {"seed", "fingerprint"} <= facts.keys()


def test_churn_comes_on_top_and_says_what_it_saw(here: Here) -> None:
    usual = ["sim", "overlay", "--nodes", "16", "--keys", "20", "--jobs", "5", "--crash", "0"]
    churn = ["--churn", "200", "--lifetimes", "pareto", "--seconds", "5", "--lookups", "20", "--loss", "0"]
    done = here(*usual, *churn, "--json")
    facts = json.loads(done.stdout.splitlines()[-1])
    found = facts["churn"]
    assert found["lookups"].keys() == {"total", "wrong", "lost", "doubled"}
    assert found["lookups"]["total"] >= 100
    assert facts["lookups"]["total"] == 20 + 2 * 5 + found["lookups"]["total"]
    assert (done.returncode == 0) == facts["ok"]
    said = here(*usual, *churn).stdout
    assert "at the right node (at least 99.9%)" in said
    assert "jobs: 5 placed" in said


def test_the_simulation_draws_in_the_terminal(here: Here) -> None:
    lines = here("sim", "overlay", "--nodes", "12", "--keys", "20", "--jobs", "30", "--crash", "0").stdout
    assert lines.splitlines()[0].endswith("all right")
    for part in ("\nring\n", "12 nodes", "30 trees", "\ntree\n◆ root ", "\nbalance of 30 trees: "):
        assert part in lines


def test_the_static_model_ends_with_one_json_object(here: Here, tmp_path: Path) -> None:
    path = tmp_path / "ring.svg"
    done = here(
        "sim", "overlay", "--model", "--nodes", "1280", "--keys", "5000", "--json", "--plot", str(path)
    )
    facts = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0
    assert facts["balance"].keys() == {"500", "1000", "2000"}
    assert 2.4 < facts["hops"]["mean"] < 2.7
    assert facts["tree"]["depth_max"] >= 3
    assert (facts["seed"], facts["lookups"]) == (1, {"total": 5000, "wrong": 0})
    assert "svg" in path.read_text()


def test_the_static_model_without_jobs_has_figures_and_no_pictures(here: Here) -> None:
    done = here(
        "sim", "overlay", "--model", "--nodes", "50", "--keys", "100", "--jobs", "0", "--leaf-set", "8"
    )
    assert (done.returncode, "leaf sets of 8" in done.stdout, "ring\n" in done.stdout) == (0, True, False)


async def test_what_a_job_answers_is_json_with_times_in_utc() -> None:
    at = datetime(2026, 3, 1, 12)
    answer: object = {"rows": pa.table({"window_start": [at], "n": [3]}), "mean": float("nan")}

    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Call):
            yield Reply(request=message.request, payload=pack_value(answer))

    async with fake_agent(answers) as agent:
        done = await elf_beside("query", "busy", "--connect", agent.address)
    assert (done.returncode, done.stderr) == (0, "")
    said = {"rows": [{"window_start": "2026-03-01T12:00:00.000Z", "n": 3}], "mean": "NaN"}
    assert json.loads(done.stdout) == said


async def test_the_last_window_of_a_job_that_is_queried_says_what_it_covers() -> None:
    status = {"revision": 2, "expected": 2, "reported": 1, "missing": ["web-2"], "late": 0}
    answer: object = {"job": "busy", "window_start": None, "window_end": None, "rows": [], "status": status}

    def answers(message: Message) -> Iterable[Message]:
        if isinstance(message, Call):
            yield Reply(request=message.request, payload=pack_value(answer))

    async with fake_agent(answers) as agent:
        done = await elf_beside("query", "busy", "--connect", agent.address)
    assert (done.returncode, json.loads(done.stdout)) == (0, answer)
    assert done.stderr == "elf: busy: 1 of 2 agents, web-2 missing, revision 2\n"
