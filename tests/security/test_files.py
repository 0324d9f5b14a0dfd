"""What an agent writes is for its user alone, lies where it should, and says so where it does not."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from agents.archive.partitions import Target
from agents.archive.pieces import piece_of
from agents.archive.shelf import Shelf
from agents.disk.modes import Access
from agents.loading import load
from agents.settings.tree import ConfigProblems
from agents.streams import hash_name
from agents.tasks.spill import SpillFolder
from agents.validation import validate
from elf.client import connect
from elf.errors import ElfError
from elf.functions.function import Failed, UserFunction
from elf.functions.sandbox import Limits, Sandboxes
from elf.ql.plan import Function
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """Started by somebody whose files everybody may read, with an archive that was open before."""
    fleet = Fleet(tmp_path, 1)
    (agent,) = fleet.agents
    (agent.folder / "archive").mkdir(parents=True)
    (agent.folder / "archive").chmod(0o755)
    before = os.umask(0)
    try:
        agent.write_config()
        agent.log.touch()
        agent.start()
    finally:
        os.umask(before)
    yield agent
    fleet.stop()


async def test_what_an_agent_writes_is_its_users(agent: Agent) -> None:
    agent.append([(time.time_ns() // 1000, "Myst", 1)])
    with agent.log.open("a") as log:
        log.write("no JSON\n")
    archive, data = agent.folder / "archive", agent.folder / "data"

    async def shipped() -> bool:
        async with connect(agent.address, cluster=agent.cluster) as client:
            await client.sql(
                "CREATE OR REPLACE JOB top AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
            )
            await client.compare_facts("top")
        return any(archive.rglob("*.parquet"))

    await eventually(shipped, "a file in the archive", despite=(ElfError,))
    (rejected,) = (data / "rejects").iterdir()
    assert "no JSON" in rejected.read_text()
    for place in (data, *data.rglob("*"), *archive.rglob("*")):
        assert mode(place) & 0o077 == 0, place
    assert f"other users may look into {archive} (mode 0755)" in agent.said()
    assert f"look into {data}" not in agent.said()


@pytest.mark.parametrize(("readers", "folder", "file"), [("group", 0o750, 0o640), ("all", 0o755, 0o644)])
def test_an_archive_for_others(tmp_path: Path, readers: str, folder: int, file: int) -> None:
    before = os.umask(0o077)
    try:
        target = Target(str(tmp_path / "a" / "b"), Access(readers))
        table = pa.table(
            {"ts": pa.array([0], pa.timestamp("us", tz="UTC")), "source": ["s"], "position": [0]}
        )
        shelf = Shelf(target, "../../x", "../y")
        (path,) = shelf.ship({0: [pa.py_buffer(piece_of(table))]}, life="n", first=0, end=1)
    finally:
        os.umask(before)
    manifest = next((tmp_path / "a" / "b").rglob("*.json"))
    for place in (Path(path), manifest):
        assert place.resolve().is_relative_to(tmp_path / "a" / "b")
        assert mode(place) == file
    for place in (Path(path).parent, manifest.parent, tmp_path / "a" / "b", tmp_path / "a"):
        assert mode(place) == folder


def test_names_from_elsewhere_are_no_paths(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    for flow in ("../../precious", "..", "/etc", "a\0b", "x" * 5000):
        folder = SpillFolder(tmp_path / "data" / "spill" / hash_name(flow))
        folder.write(b"x")
        folder.close()
    assert precious.is_dir()
    assert [*(tmp_path / "data" / "spill").iterdir()] == []


def test_the_batch_of_a_failed_function_stays_in_its_folder(tmp_path: Path) -> None:
    spec = Function("../../map", "def map(batch): return batch", f"../../{'x' * 300}\x1b\0.py")
    function = UserFunction(Sandboxes(), spec, Limits(), print, tmp_path / "failed" / "here")
    batch = pa.record_batch({"a": [1]})
    kept = function._keep(batch, (0, 1), Failed("raised", "wrong", 1))
    assert kept is not None
    assert kept.is_file()
    assert [*tmp_path.rglob("*.arrow")] == [kept]
    assert kept.parent == tmp_path / "failed" / "here"


def test_validate_tells_of_open_folders_and_of_archives_that_nobody_reaches(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    settings = {
        "data_dir": str(data),
        "agent": {"listen": "127.0.0.1:0"},
        "http": {"listen": None},
        "archive": {"path": str(tmp_path / "archive"), "readers": "group", "group": "no-such-group"},
    }
    file = tmp_path / "elf.yaml"
    file.write_text(yaml.safe_dump(settings))
    found = validate(load(file, {}))
    assert f"data_dir: other users may look into {data} (mode 0755); close it: chmod -R go= {data}" in (
        found.notes
    )
    assert "archive.group: this machine has no group no-such-group" in found.machine
    settings["archive"] = {"readers": "all"}
    file.write_text(yaml.safe_dump(settings))
    with pytest.raises(ConfigProblems, match=f"archive.readers: nobody else can look into data_dir {data}"):
        load(file, {})
