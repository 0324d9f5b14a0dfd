"""Windows in a table of a real PostgreSQL: each once, in its newest revision, whoever brings it how often."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agents.disk.store import Store
from agents.outputs.delivering import Deliveries
from elf.fields import replace
from lab.bench.outputs.postgres import PASSWORD, Server, missing, running
from tests.support.delivered import commit, deliver, output

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("pg")) as server:
        yield server


class Base:
    """The tables of one test, and who brings windows to them."""

    def __init__(self, server: Server, folder: Path, table: str) -> None:
        (folder / "pg").write_text(f"for: {server.url}\n{PASSWORD}")
        self.folder = folder
        self.url = server.url
        self.store = Store(":memory:")
        self.to = self.agent()
        self.out = output(server.url, secret="pg", table=table)
        self.table = table
        self._connection = psycopg.connect(server.url, password=PASSWORD, autocommit=True)

    def agent(self) -> Deliveries:
        return Deliveries("a:1", (self.url,), self.folder)

    def rows(self, sql: str = "") -> list[tuple[Any, ...]]:
        sql = sql or f"SELECT extract(epoch FROM window_start)::int, page, n FROM {self.table} ORDER BY 1, 2"
        return list(self._connection.execute(sql))

    def windows(self) -> list[tuple[Any, ...]]:
        return self.rows(
            "SELECT extract(epoch FROM window_start)::int, version, revision, rows, status->'missing' "
            f"FROM elf_windows WHERE \"table\" = '{self.table}' ORDER BY 1"
        )

    def close(self) -> None:
        self.to.close()
        self._connection.close()
        self.store.close()


@pytest.fixture
def base(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Base]:
    base = Base(server, tmp_path, request.node.name.replace("test_", "")[:50])
    yield base
    base.close()


def test_a_window_is_there_once_in_its_newest_revision(base: Base) -> None:
    commit(base.store, 0, [{"page": "/", "n": 2}, {"page": "/x\0", "n": None}])
    commit(base.store, 10, [{"page": "/", "n": 5}])
    commit(base.store, 20, [])
    assert deliver(base.to, base.out, base.store).error == ""
    assert base.rows() == [(0, "/", 2), (0, "/x�", None), (10, "/", 5)]
    commit(base.store, 0, [{"page": "/", "n": 3}], revision=1)
    commit(base.store, 10, [], revision=1)
    other = base.agent()
    done = deliver(other, base.out, base.store)  # all, from the beginning, by another agent
    assert (done.error, done.kept.number) == ("", 5)
    base.rows("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'elf%'")
    for agent in (base.to, other):
        assert deliver(agent, base.out, base.store).error == ""
    other.close()
    assert base.rows() == [(0, "/", 3)]
    assert base.windows() == [(0, 1, 1, 1, ["web-2"]), (10, 1, 1, 0, ["web-2"]), (20, 1, 0, 0, ["web-2"])]


def test_who_is_late_with_an_old_revision_changes_nothing(base: Base) -> None:
    """Two agents at once, each with all revisions, over and over: the newest stays."""
    for revision in range(8):
        commit(base.store, 0, [{"page": "/", "n": revision}] * (revision + 1), revision)
    agents = [base.agent() for _ in range(4)]
    errors: list[str] = []

    def bring(agent: Deliveries) -> None:
        errors.extend(deliver(agent, base.out, base.store).error for _ in range(3))

    threads = [threading.Thread(target=bring, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for agent in agents:
        agent.close()
    assert set(errors) == {""}
    assert base.rows() == [(0, "/", 7)] * 8


def test_a_changed_job_brings_its_columns_and_a_new_one_its_windows(base: Base) -> None:
    commit(base.store, 0, [{"page": "/", "n": 2}])
    commit(
        base.store, 10, [{"page": "/", "n": 2, "sum": Decimal(3), "all": [1, None], "ok": True}], version=2
    )
    assert deliver(base.to, base.out, base.store).error == ""
    assert base.rows(f'SELECT n, sum, "all", ok FROM {base.table} ORDER BY window_start') == [
        (2, None, None, None),
        (2, Decimal(3), [1, None], True),
    ]
    changed = output(base.url, 2, secret="pg", table=base.table)  # DROP and CREATE under one name
    assert deliver(base.to, changed, base.store).error == ""
    assert base.rows("SELECT DISTINCT created FROM elf_windows WHERE created > 1") == [(2,)]
    assert deliver(base.agent(), base.out, base.store).error == ""  # the output before, by one who is behind
    assert base.rows("SELECT DISTINCT created FROM elf_windows WHERE created > 1") == [(2,)]
    done = deliver(base.to, replace(changed, name="other"), base.store)
    assert "has windows of another output" in done.error


def test_of_two_outputs_that_come_to_a_table_at_once_one_has_it(base: Base) -> None:
    other = replace(base.out, name="other")
    assert deliver(base.to, base.out, base.store).error == ""  # both are open before anything is there
    assert "has windows of another output" in deliver(base.agent(), other, base.store).error


def test_what_the_server_says_against_it_is_the_reason(base: Base) -> None:
    commit(base.store, 0, [{"page": "/", "n": 2}])
    commit(base.store, 10, [{"page": "/", "n": "many"}], version=2)
    done = deliver(base.to, base.out, base.store)
    assert done.kept.number == 1
    assert 'invalid input syntax for type bigint: "many"' in done.error
    assert base.rows() == [(0, "/", 2)]
    (base.folder / "pg").write_text(f"for: {base.url}\nno word")
    assert "password authentication failed" in deliver(base.agent(), base.out, base.store).error
