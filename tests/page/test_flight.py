"""``elf flight``, asked by the ADBC driver that pandas, polars and DuckDB use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from adbc_driver_flightsql import dbapi

from elf.doors import flight as server
from elf.doors.answers import read_only
from elf.doors.flight import Kept
from elf.doors.messages import packed, unpacked
from elf.errors import UserError
from tests.page.conftest import Pages
from tests.support.commands import elf
from tests.support.enrolled import until

FILE = Path(__file__).with_suffix(".csv")
HEADER = "adbc.flight.sql.authorization_header"
PAST = "SELECT product, SUM(clicks) AS clicks FROM JOB most WINDOWS SINCE '-1 hour' GROUP BY product"
Connect = Callable[..., dbapi.Connection]


@pytest.fixture(scope="module")
def connect(pages: Pages) -> Iterator[Connect]:
    """Connections with the keys in a folder: those of whoever owns the fleet, if no other is named."""
    doors: dict[Path, tuple[str, str]] = {}
    with ExitStack() as opened:

        def door(keys: Path) -> tuple[str, str]:
            command = [sys.executable, "-m", "elf.cli.main", "flight", "--connect", pages.fleet.address]
            command += ["--listen", "127.0.0.1:0", "--keys", str(keys)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            opened.callback(process.wait)
            opened.callback(process.terminate)
            assert process.stdout is not None
            opened.callback(process.stdout.close)
            _, place, shown = (process.stdout.readline().strip() for _ in range(3))
            return place, shown.partition(": ")[2]

        def made(keys: Path | None = None, shown: str = "") -> dbapi.Connection:
            keys = keys or pages.fleet.own
            place, token = doors.setdefault(keys, doors.get(keys) or door(keys))
            made = dbapi.connect(place, db_kwargs={HEADER: shown or token}, autocommit=True)
            return opened.enter_context(made)

        yield made


def asked(connection: dbapi.Connection, sql: str) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetch_arrow_table()


def test_past_windows_live_windows_and_facts_are_tables(connect: Connect) -> None:
    connection = connect()
    until(lambda: asked(connection, PAST).column_names != ["text"], 60)  # which says that none is kept
    past = asked(connection, PAST)
    assert past.column_names == ["product", "clicks"]
    live = asked(connection, "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS")
    assert live.column_names == ["window_start", "window_end", "n"]
    assert asked(connection, "SHOW JOBS")["job"].to_pylist() == ["most"]
    assert "final fragment" in "\n".join(asked(connection, "EXPLAIN most")["text"].to_pylist())
    with connection.cursor() as cursor:  # as the Python database API has it
        cursor.execute("DESCRIBE STREAM clicks")
        assert [column[0] for column in cursor.description or ()] == ["column", "type"]
        assert ("product", "text") in cursor.fetchall()


def test_what_there_is(connect: Connect) -> None:
    connection = connect()
    assert sorted(connection.adbc_get_table_types()) == ["JOB", "STREAM"]
    (catalog,) = connection.adbc_get_objects(depth="tables", table_name_filter="m%").read_all().to_pylist()
    found = {one["db_schema_name"]: one["db_schema_tables"] for one in catalog["catalog_db_schemas"]}
    assert [(table["table_name"], table["table_type"]) for table in found["jobs"]] == [("most", "JOB")]
    assert not found["streams"]
    schema = connection.adbc_get_table_schema("clicks", db_schema_filter="streams")
    assert schema.field("product").type == pa.string()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("DROP JOB most", "DROP JOB: this door only reads"),
        ("CREATE JOB x AS SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS", "this door only reads"),
        ("ALTER JOB most SET a = 1 PREVIEW 1 WINDOWS", "this door only reads"),
        ("SHOW JOBS; DROP JOB most", "one statement at a time, not 2"),
        ("SELECT produkt FROM clicks GROUP BY produkt WINDOWING 1 SECONDS", "did you mean"),
        ("SELEC 1", "SELEC"),
        (
            f"SELECT t.a, COUNT(*) AS n FROM clicks JOIN '{FILE}' AS t USING (product) GROUP BY t.a "
            "WINDOWING 1 SECONDS",
            "did not come with the statement",
        ),
    ],
)
def test_it_reads_and_says_what_is_wrong(sql: str, why: str, connect: Connect) -> None:
    with pytest.raises(adbc_driver_manager.ProgrammingError, match=why):
        asked(connect(), sql)
    assert asked(connect(), "SHOW JOBS").num_rows == 1


def test_who_has_no_token_learns_nothing_and_roles_are_the_fleets(connect: Connect, pages: Pages) -> None:
    for shown in ("Bearer nothing", "Basic YTpi"):
        with pytest.raises(adbc_driver_manager.Error, match="show the token"):
            asked(connect(shown=shown), "SHOW JOBS")
    rita = connect(keys=pages.fleet.folder / "rita")
    assert asked(rita, "SHOW JOBS").num_rows == 1
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="tap"):
        asked(rita, "SELECT * FROM clicks LIMIT 3")


def test_what_comes_at_once_is_bounded(connect: Connect) -> None:
    connections = [connect() for _ in range(server.AT_ONCE + 2)]
    slow = "SELECT COUNT(*) AS n FROM clicks WINDOWING 2 SECONDS"

    def ask(connection: dbapi.Connection) -> str:
        try:
            return str(asked(connection, slow).num_rows)
        except adbc_driver_manager.Error as error:
            return str(error)

    with ThreadPoolExecutor(len(connections)) as pool:
        told = list(pool.map(ask, connections))
    assert sum("are being answered" in one for one in told) >= 1
    assert sum(one.isdecimal() for one in told) >= 1


def test_what_is_no_statement_is_not_prepared() -> None:
    for body, why in ((b"", "nothing"), (packed("CommandGetCatalogs"), "CommandGetCatalogs")):
        action = fl.Action("CreatePreparedStatement", pa.py_buffer(body))
        with pytest.raises(pa.ArrowInvalid, match=f"a statement is wanted to prepare, not {why}"):
            server.Server.do_action(None, None, action)  # type: ignore[arg-type]


def test_results_wait_for_a_time_and_in_so_many_bytes() -> None:
    kept, small = Kept(bytes_max=100), pa.table({"n": [1, 2, 3, 4]})
    first = kept.put(small, 0.0)
    assert kept.take(first) == small
    assert kept.take(first) is None
    old = kept.put(small, 1.0)
    new = kept.put(small, 2.0 + server.KEPT_SECS)
    assert (kept.take(old), kept.take(new)) == (None, small)
    tickets = [kept.put(small, 100.0) for _ in range(5)]
    assert [kept.take(one) is not None for one in tickets] == [False, False, True, True, True]
    with pytest.raises(UserError, match="ask for fewer rows"):
        kept.put(pa.table({"n": list(range(100))}), 0.0)


def test_messages_are_flights_own_and_others_are_told_apart() -> None:
    assert packed("CommandStatementQuery", query="q").endswith(b"\x0a\x01q")
    name, message = unpacked(packed("CommandGetTables", table_types=["JOB"], include_schema=True))
    assert (name, list(message.table_types), message.include_schema) == ("CommandGetTables", ["JOB"], True)
    assert unpacked(b"\x0a\x05x/a.b") == ("a.b", None)
    with pytest.raises(ValueError, match="no message of Flight SQL"):
        unpacked(b"\xff\xff")
    with pytest.raises(UserError, match="not 0"):
        read_only("")


def test_it_listens_on_loopback_alone(pages: Pages) -> None:
    done = elf("flight", "--connect", pages.fleet.address, "--listen", "0.0.0.0:7074")
    assert (done.returncode, "for this machine alone" in done.stderr) == (1, True)
    assert issubclass(server.Server, fl.FlightServerBase)


def test_a_port_that_is_taken_is_said(pages: Pages) -> None:
    args = ("--connect", pages.fleet.address, "--keys", str(pages.fleet.own))
    tried = elf("flight", *args, "--listen", pages.fleet.address)
    assert (tried.returncode, "is the port in use?" in tried.stderr) == (1, True), tried.stderr
