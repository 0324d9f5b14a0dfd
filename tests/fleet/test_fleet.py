"""Fleets of real processes over real sockets: exact windows, through the death of a worker and of a root."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import subprocess
import sys
import time
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from elf.client import Window
from elf.client.results import facts_of
from elf.errors import UserError
from tests.support.fleet import STREAM, Fleet
from tests.support.receiver import Server, serving
from tests.support.waiting import eventually, wait_until
from tests.support.watching import (
    CREATE,
    SECOND_US,
    check,
    clicks,
    connected,
    create,
    start_us,
    watched,
)


async def test_a_killed_worker_is_named_and_its_rows_come_as_revisions(five: Fleet) -> None:
    client = await connected(five, 1)
    five.begin_writing()
    await create(client)
    master = five.agent_at(str((await client.tree("popular"))["master"]))
    async with watched(client, "popular") as windows:
        await eventually(lambda: len(windows) >= 3, "three windows")
        victim = next(a for a in five.agents[2:] if a is not master)
        victim.kill()
        killed_us = time.time_ns() // 1000

        def missing() -> list[Window]:
            return [w for w in windows.values() if w.status["missing"] == [victim.name]]

        await eventually(lambda: len(missing()) >= 2, "windows without the killed agent")
        for window in missing():
            start = start_us(window)
            assert window.status["reported"] == 4
            assert window.status["expected"] == 5
            if start > killed_us:
                assert clicks(window) == five.truth(start, start + 2 * SECOND_US, without=[victim.name])
        assert max(windows) + 2 * SECOND_US > killed_us - 2 * SECOND_US
        victim.start()
        started_us = time.time_ns() // 1000
        await eventually(
            lambda: sum(at > started_us and not w.status["missing"] for at, w in windows.items()) >= 3,
            "three windows with the one that is back",
        )
        end_us = five.end_writing() - SECOND_US
        await eventually(
            lambda: max(windows, default=0) + 4 * SECOND_US >= end_us and not missing(), "revised windows", 40
        )
        check(five, windows, end_us - 2 * SECOND_US, least=6)
        assert any(window.revision > 0 for window in windows.values())
    await another_job_reads_the_same_flow(five)


async def another_job_reads_the_same_flow(fleet: Fleet) -> None:
    client = await connected(fleet, 2)
    other = "HAVING clicks > 1 WINDOWING 4 SECONDS SLIDE 2 SECONDS"
    await client.sql(CREATE.replace("popular", "most").replace("WINDOWING 2 SECONDS", other))
    trees: list[dict[str, Any]] = [await client.tree(job) for job in ("popular", "most")]
    jobs = (await client.sql("SHOW JOBS")).table
    assert jobs is not None
    shown = {row["job"]: (row["flow"], row["readers"]) for row in jobs.to_pylist()}
    (uid,) = {flow["flow"] for tree in trees for flow in tree["flows"]}
    assert shown == {"popular": (uid[:8], 2), "most": (uid[:8], 2)}
    facts = facts_of(await client.sql("DESCRIBE most"))
    assert facts["flow"].startswith(f"{uid[:8]} over {STREAM}, root ")
    assert facts["flow"].endswith("read by popular, most")
    assert facts["members"].count(",") == 4
    assert facts["master"] in facts["kept by"], "others come to it within a second"
    await client.close()


async def test_the_master_of_a_job_is_killed_and_its_windows_go_on_elsewhere(
    five: Fleet, tmp_path: Path
) -> None:
    """Read through another agent: no window is missing, and when the killed one is back all are complete. So
    it is where the job has outputs: at a server, in a folder that all agents share, and in a table of Delta
    Lake there."""
    with serving() as server:
        await _killed_master(five, server, tmp_path / "out")


async def _killed_master(five: Fleet, server: Server, folder: Path) -> None:
    client = await connected(five, 1)
    five.begin_writing()
    await create(client)
    await client.sql(f"CREATE OUTPUT hook FROM JOB popular TO '{server.url}' FROM BEGINNING")
    await client.sql(f"CREATE OUTPUT files FROM JOB popular TO 'file:{folder}' FROM BEGINNING")
    lake = folder.with_name("lake")
    if has_delta := find_spec("deltalake") is not None:
        await client.sql(f"CREATE OUTPUT lake FROM JOB popular TO 'delta:{lake}' FROM BEGINNING")
    master = five.agent_at(str((await client.tree("popular"))["master"]))
    if master is five.agents[1]:
        await client.close()
        client = await connected(five, 2)
    async with watched(client, "popular") as windows:
        await eventually(lambda: len(windows) >= 4, "four windows")
        master.kill()
        killed_us = time.time_ns() // 1000
        await eventually(lambda: max(windows) > killed_us + 2 * SECOND_US, "windows from another master")
        starts = sorted(windows)
        assert starts == list(range(starts[0], starts[-1] + 1, 2 * SECOND_US))
        for start in (start for start in starts if start > killed_us):
            assert windows[start].status["missing"] == [master.name]
            assert clicks(windows[start]) == five.truth(start, start + 2 * SECOND_US, without=[master.name])
        assert str((await client.tree("popular"))["master"]) != master.address
        master.start()
        await eventually(lambda: len(windows) >= 8, "eight windows")
        end_us = five.end_writing() - SECOND_US
        await eventually(lambda: max(windows) + 4 * SECOND_US >= end_us, "the last windows", 40)
        await eventually(
            lambda: all(not w.status["missing"] for w in windows.values()), "complete windows", 40
        )
        check(five, windows, end_us - 2 * SECOND_US, least=6)

        def outside() -> list[dict[int, dict[str, int]]]:
            return [at_server(server), in_files(folder), *([in_lake(lake)] if has_delta else [])]

        wanted = {
            start: clicks(window) for start, window in windows.items() if start + 4 * SECOND_US < end_us
        }
        await eventually(lambda: all(wanted.items() <= out.items() for out in outside()), "outputs", 20)
        shown = (await client.sql("SHOW OUTPUTS")).table
        assert shown is not None
        assert {row["lost"] for row in shown.to_pylist()} == {0}
    await client.close()


def at_server(server: Server) -> dict[int, dict[str, int]]:
    """Clicks by window (µs) and product, of the last revision of each that came."""
    found: dict[int, tuple[int, list[dict[str, Any]]]] = {}
    for body in server.bodies:
        start = int(datetime.fromisoformat(body["window_start"]).timestamp() * 1e6)
        if start not in found or found[start][0] <= body["revision"]:
            found[start] = body["revision"], body["rows"]
    return {at: {row["product"]: row["clicks"] for row in rows} for at, (_, rows) in found.items()}


def in_lake(folder: Path) -> dict[int, dict[str, int]]:
    """The same of a table."""
    from deltalake import DeltaTable

    found: dict[int, dict[str, int]] = {}
    for row in DeltaTable(folder).to_pyarrow_table().to_pylist():
        window = found.setdefault(int(row["window_start"].timestamp() * 1e6), {})
        assert row["product"] not in window
        window[row["product"]] = int(row["clicks"])
    return found


def in_files(folder: Path) -> dict[int, dict[str, int]]:
    """The same of files, of which there is one for each window."""
    found: dict[int, dict[str, int]] = {}
    for file in folder.glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        if not rows:
            continue  # a revision that has none any more
        start = int(datetime.fromisoformat(rows[0]["window_start"]).timestamp() * 1e6)
        assert start not in found, file
        found[start] = {row["product"]: row["clicks"] for row in rows}
    return found


async def test_the_master_of_a_key_range_dies_for_good_and_its_windows_go_on(five: Fleet) -> None:
    """With all that it had: another member of its group is the root of that range, and no window is missing.
    The job had one tree before."""
    client = await connected(five, 0)
    five.begin_writing()
    await create(client)
    said = await client.sql("ALTER JOB popular SCALE OUT 3")
    assert "it has 4 trees, and had 1" in said.text
    with pytest.raises(UserError, match="of 5 agents 5 read lines, and never go by themselves"):
        await client.sql("SHOW SCALE IN 1")
    tree: dict[str, Any] = await client.tree("popular")
    roots = [five.agent_at(str(flow["root"])) for flow in tree["flows"]]
    victim = next((root for root in roots if root not in (roots[0], five.agents[0])), roots[0])
    if victim is five.agents[0]:
        await client.close()
        client = await connected(five, 1)
    async with watched(client, "popular") as windows:
        await eventually(lambda: len(windows) >= 4, "four windows")
        victim.kill()
        shutil.rmtree(victim.folder / "data")
        killed_us = time.time_ns() // 1000
        await eventually(lambda: max(windows) > killed_us + 2 * SECOND_US, "windows of all key ranges")
        end_us = five.end_writing()
        starts = sorted(windows)
        assert starts == list(range(starts[0], starts[-1] + 1, 2 * SECOND_US))
        for start in (start for start in starts if killed_us < start < end_us - 2 * SECOND_US):
            assert windows[start].status["missing"] == [victim.name]
            assert clicks(windows[start]) == five.truth(start, start + 2 * SECOND_US, without=[victim.name])
        now: dict[str, Any] = await client.tree("popular")
        assert victim.address not in {flow["root"] for flow in now["flows"]}
    await client.close()


async def test_sigterm_takes_a_cut_and_leave_hands_everything_over(five: Fleet) -> None:
    client = await connected(five, 1)
    five.begin_writing()
    await create(client)
    master = five.agent_at(str((await client.tree("popular"))["master"]))
    stopped, leaving = [a for a in five.agents[1:] if a is not master][:2]
    if five.agents[1] in (stopped, leaving):
        await client.close()
        client = await connected(
            five, five.agents.index(next(a for a in five.agents if a not in (stopped, leaving)))
        )
    async with watched(client, "popular") as windows:
        await eventually(lambda: len(windows) >= 2, "two windows")
        assert stopped.terminate() == 0
        stopped.start()
        done = await asyncio.to_thread(
            subprocess.run,
            [
                sys.executable,
                "-m",
                "elf.cli.main",
                "leave",
                "--connect",
                leaving.address,
                "--cluster",
                "test",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert leaving.process is not None
        assert leaving.process.wait(20) == 0
        left_us = time.time_ns() // 1000
        leaving.process = None
        read = (leaving.log.stat().st_size, len(leaving.written))
        assert read[0] > 0
        await eventually(
            lambda: any(w.status["expected"] == 4 for w in windows.values()), "windows of four", 40
        )
        five.end_writing()
        after = [w for start, w in windows.items() if start > left_us and w.status["expected"] == 4]
        for window in after:
            start = start_us(window)
            assert clicks(window) == five.truth(start, start + 2 * SECOND_US, without=[leaving.name])


async def test_http_on_each_agent(five: Fleet) -> None:
    client = await connected(five, 1)
    five.begin_writing()
    await create(client)
    five.end_writing()
    said = await client.sql("NOTIFY JOB popular 'half price'")
    assert said.text == "notice sent to the 5 agents of job popular"
    await client.close()

    def get(path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", five.agents[3].http_port, timeout=5)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()

    assert (await asyncio.to_thread(get, "/health")) == (200, b'{"ok":true}')
    assert (await asyncio.to_thread(get, "/ready"))[0] == 200
    status, text = await asyncio.to_thread(get, "/metrics")
    assert status == 200
    assert b"elf_members_live 5.0" in text
    assert b'elf_losses_total{kind="input_bytes"} 0.0' in text
    status, body = await asyncio.to_thread(get, "/api/v1/members")
    assert status == 200
    assert len(json.loads(body)["members"]) == 5
    status, body = await asyncio.to_thread(get, "/api/v1/jobs/popular/notices")
    assert (status, [broadcast["text"] for broadcast in json.loads(body)["notices"]]) == (200, ["half price"])


def test_what_cannot_start_says_so_in_one_line(tmp_path: Path) -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agents.main", *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    nowhere = run("--config", str(tmp_path / "none.yaml"))
    assert nowhere.returncode == 78
    assert len(nowhere.stderr.splitlines()) == 1

    fleet = Fleet(tmp_path, 2)
    first, second = fleet.agents
    path = first.write_config()
    path.write_text(path.read_text().replace("format: json", "format: jsn"))
    wrong = run("validate", "--config", str(path))
    assert wrong.returncode == 78
    assert "json" in wrong.stderr

    first.start()
    try:
        wait_until(lambda: "agent is ready" in first.said(), first.said, 20)
        second.port = first.port
        taken = run("--config", str(second.write_config()))
        assert taken.returncode == 1
        assert str(first.port) in taken.stderr.splitlines()[-1]
    finally:
        fleet.stop()


async def test_the_founder_is_killed_for_good_and_agents_join_and_jobs_are_made(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 4)
    *first, late = fleet.agents
    fleet.agents = first
    fleet.start()
    try:
        client = await connected(fleet, 1)

        async def log() -> dict[str, Any]:
            status: dict[str, Any] = await client.status()
            return dict(status["log"])

        async def led(by: set[str]) -> None:
            told: dict[str, Any] = {}

            async def by_them() -> bool:
                nonlocal told
                told = await log()
                if set(told["keepers"]) != by:
                    return False
                if str(told["leader"]) == first[0].address and first[0].process is not None:
                    first[0].kill()
                return str(told["leader"]) != first[0].address

            await eventually(by_them, lambda: f"the log is kept by {told}", 30)

        await led({agent.address for agent in first})
        fleet.begin_writing()
        late.bootstrap = (first[2].address,)
        late.write_config()
        late.log.touch()
        late.start()
        fleet.agents = [*first, late]
        await (await connected(fleet, 3)).close()
        await create(client)
        status: dict[str, Any] = await client.status()
        (job,) = status["jobs"]
        assert job == "popular"
        async with watched(client, "popular") as windows:
            await eventually(
                lambda: any(
                    w.status["reported"] == 3 and w.status["expected"] == 4 for w in windows.values()
                ),
                "windows of the three that live",
            )
            fleet.end_writing()
    finally:
        fleet.agents = [*first, late]
        fleet.stop()
