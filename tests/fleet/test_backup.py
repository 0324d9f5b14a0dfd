"""``elf backup``: what a fleet does, as statements that make another one do the same."""

from __future__ import annotations

import asyncio
import stat
import tarfile
from functools import partial
from pathlib import Path

import pytest

from elf.cli.ask import statements
from elf.cli.backup import back_up
from elf.client import connect
from elf.errors import UserError
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually

TEXT = """
CREATE JOB slow AS SELECT product, COUNT(*) AS n FROM clicks WHERE clicks_count > :least GROUP BY product
    WINDOWING 5 SECONDS WITH (least = 2);
CREATE JOB kinds AS SELECT kind, COUNT(*) AS n FROM clicks JOIN 'kinds.csv' AS k USING (product) GROUP BY kind
    WINDOWING 5 SECONDS;
CREATE JOB filtered AS SELECT product, COUNT(*) AS n FROM clicks GROUP BY product WINDOWING 5 SECONDS;
ALTER JOB filtered SET FUNCTION map FROM 'keep.py';
CREATE JOB most AS SELECT MAX(n) AS n FROM JOB slow;
CREATE OUTPUT files FROM JOB slow TO 'file:FOLDER/out' WITH (format = 'csv') FROM BEGINNING;
CREATE TABLE last FROM JOB slow KEY (product) RETAIN 2 HOURS;
CREATE ALERT many ON JOB slow WHEN n > 3 BY product FOR 2 WINDOWS COVERAGE >= 0.5 NOTIFY 'http://127.0.0.1:9/alerts';
"""


async def say(agent: Agent, text: str) -> None:
    async with connect(agent.address, cluster="test") as client:
        for statement in statements(text):
            await client.sql(statement)


def has_read(agent: Agent) -> bool:
    try:
        return agent.metric("rows_total") == 1
    except OSError:
        return False


def unpacked(path: Path, into: Path) -> list[str]:
    """Its files; the statements are in the first."""
    with tarfile.open(path) as tar:
        tar.extractall(into, filter="data")
        return sorted(name.removeprefix("elf-backup/") for name in tar.getnames())


async def test_what_is_backed_up_makes_another_fleet_do_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Fleet(tmp_path / "1", 1).agents[0], Fleet(tmp_path / "2", 1).agents[0]
    (tmp_path / "keep.py").write_text("def map(batch):\n    return batch\n")
    (tmp_path / "kinds.csv").write_text("product,kind\nDoom,shooter\n")
    try:
        for agent in (first, second):
            agent.more = {"outputs": {"allow": [f"file:{tmp_path}", "http:"]}}
            agent.write_config()
            agent.log.touch()
            agent.append([(1_700_000_000_000_000, "Doom", 1)])
            agent.fork()
            await eventually(partial(has_read, agent), "a row that tells the columns")
        monkeypatch.chdir(tmp_path)
        await say(first, TEXT.replace("FOLDER", str(tmp_path)))
        folder = first.folder / "data"
        (folder / "mask.key").write_bytes(b"secret")
        assert await asyncio.to_thread(back_up, folder, tmp_path / "one.tar.gz", keys=True) == 0
        assert stat.S_IMODE((tmp_path / "one.tar.gz").stat().st_mode) == 0o600
        names = unpacked(tmp_path / "one.tar.gz", tmp_path / "there")
        assert names == ["files/keep.py", "files/kinds.parquet", "fleet.sql", "mask.key"]
        monkeypatch.chdir(tmp_path / "there" / "elf-backup")
        text = Path("fleet.sql").read_text()
        await say(second, text)
        assert (
            await asyncio.to_thread(back_up, second.folder / "data", tmp_path / "two.tar.gz", keys=False) == 0
        )
        assert unpacked(tmp_path / "two.tar.gz", tmp_path / "again") == names[:-1]
        again = (tmp_path / "again" / "elf-backup" / "fleet.sql").read_text()
        assert again.splitlines()[1:] == text.splitlines()[1:]
        assert len(statements(again)) == 8
    finally:
        for agent in (first, second):
            if agent.process is not None:
                agent.kill()
    with pytest.raises(UserError, match="is no data folder of an agent"):
        back_up(tmp_path, tmp_path / "three.tar.gz", keys=False)
