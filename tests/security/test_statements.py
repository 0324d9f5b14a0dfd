"""SQL that somebody would have an agent run: in statements, taps, forged messages, and in DuckDB itself. Each
attempt is refused with a typed error, and the agent goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import duckdb
import msgspec
import pyarrow as pa
import pytest

from agents import codec
from agents.tasks.engine import Statement, instance, one_select
from elf.batch import decode, encode
from elf.client import Client
from elf.client.tables import read_table
from elf.errors import ElfBug, QueryError, UserError
from elf.job.messages import groups, inquiries
from elf.job.spec import JobSpec, app_id
from elf.ql import fuel
from elf.ql.definition import Contents, Definition, why_not
from elf.ql.planner import plan_text
from elf.ql.statements import parse
from elf.schema import Column, Schema
from elf.security.loopback import loopback_file, read_loopback
from elf.transport.zeromq import ZeroMqTransport
from elf.wire.base import Answer, Request
from elf.wire.frames import FrameRefused
from overlay import Peer
from overlay import messages as ring
from tests.support.fleet import STREAM, Fleet
from tests.support.watching import connected

CLUSTER = "test"
SECRET = "/etc/passwd"
ANSWER_SECS = 20.0


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("one"), 1)
    fleet.start()
    yield fleet
    fleet.stop()


async def a_line_is_read(fleet: Fleet, client: Client) -> None:
    """From then on the stream's columns are known."""
    fleet.agents[0].append([(time.time_ns() // 1000, "Doom", 1)])
    async with asyncio.timeout(ANSWER_SECS):
        while True:
            with contextlib.suppress(UserError):
                if (await client.sql(f"DESCRIBE STREAM {STREAM}")).table is not None:
                    return
            await asyncio.sleep(0.1)


def written(folder: Path) -> Path:
    """A file that no attempt may make."""
    return folder / "written"


# -- what a person says --------------------------------------------------------------------------------------

STATEMENTS = (
    "COPY (SELECT 1) TO '{out}'",
    "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS; COPY (SELECT 1) TO '{out}'",
    "ATTACH '{out}' AS a",
    "INSTALL httpfs",
    "LOAD '{out}'",
    "PRAGMA database_list",
    "SET temp_directory = '{out}'",
    "CALL enable_logging()",
    "EXPORT DATABASE '{out}'",
    "SELECT COUNT(*) AS n FROM read_csv('{secret}') WINDOWING 1 SECONDS",
    "SELECT COUNT(*) AS n FROM '{secret}' WINDOWING 1 SECONDS",
    "SELECT COUNT(*) AS n FROM glob('/etc/*') WINDOWING 1 SECONDS",
    "SELECT COUNT(*) AS n FROM clicks, read_text('{secret}') WINDOWING 1 SECONDS",
    "SELECT COUNT(*) AS n FROM clicks JOIN read_parquet('{secret}') AS p ON p.x = id WINDOWING 1 SECONDS",
    "SELECT MAX(getenv('HOME')) AS home FROM clicks WINDOWING 1 SECONDS",
    "SELECT MAX(current_setting('secret_directory')) AS s FROM clicks WINDOWING 1 SECONDS",
    "SELECT MAX((SELECT content FROM read_text('{secret}'))) AS s FROM clicks WINDOWING 1 SECONDS",
    'SELECT MAX("product"") FROM read_text(\'{secret}\') --") AS s FROM clicks WINDOWING 1 SECONDS',
    "SELECT COUNT(*) AS n FROM clicks WHERE product = $$x$$ WINDOWING 1 SECONDS",
    "CREATE JOB j AS COPY (SELECT 1) TO '{out}'",
    "EXPLAIN COPY (SELECT 1) TO '{out}'",
    "EXPLAIN ANALYZE SELECT COUNT(*) AS n FROM read_blob('{secret}') WINDOWING 1 SECONDS",
)


async def test_no_statement_reaches_files_settings_or_the_environment(one: Fleet, tmp_path: Path) -> None:
    out = written(tmp_path)
    async with await connected(one, 0) as client:
        for text in STATEMENTS:
            said = text.format(out=out, secret=SECRET)
            with pytest.raises(UserError) as refused:
                await client.sql(said)
            assert "root:" not in str(refused.value)
        assert (await client.sql("SHOW JOBS")).table is None
    assert not out.exists()


LARGE = (
    (f"SELECT COUNT(*) AS n FROM clicks WHERE id IN ({','.join(map(str, range(110_000)))})", "characters"),
    (f"SELECT COUNT(*) AS n FROM clicks WHERE id IN ({','.join(map(str, range(9_000)))})", "words and signs"),
    (";".join(["SHOW JOBS"] * 6_000), "statements"),
    (";" * 60_000, "statements"),
    (f"SELECT {'(' * 200_000}1", "characters"),
    (f"SELECT {'(' * 30_000}1", "brackets in one another"),
    (f"SELECT {'CASE WHEN 1 THEN ' * 300}1", "brackets in one another"),
    (f"SELECT {'9' * 5_000} AS n FROM clicks WINDOWING 1 SECONDS", "digits of a number"),
    (f"SELECT 1 {'/* a */ ' * 7_000}", "words and signs"),
    (f"SELECT SUM(id) AS n FROM {'(SELECT id + id AS id FROM ' * 40}clicks{')' * 40}", "too large"),
)


async def test_no_text_holds_an_agent_up(one: Fleet) -> None:
    async with await connected(one, 0) as client, await connected(one, 0) as other:
        await a_line_is_read(one, client)
        for text, what in LARGE:
            slowest = asyncio.create_task(_slowest(other))
            with pytest.raises(UserError, match=what):
                await client.sql(text)
            slowest.cancel()
            assert await slowest < 2.0


async def _slowest(client: Client) -> float:
    """How long the slowest answer of an agent takes, until this is cancelled."""
    most = 0.0
    try:
        while True:
            began = time.monotonic()
            await client.status()
            most = max(most, time.monotonic() - began)
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        return max(most, time.monotonic() - began)


SCHEMA = Schema((*(Column(f"c{n}", "bigint") for n in range(50)), Column("ts", "timestamp")), "ts")
MANY = fuel.TOKENS_MAX - 100
ACCEPTED = (
    f"SELECT COUNT(*) AS n FROM x WHERE c0 IN ({','.join(map(str, range(MANY // 2)))})",
    f"SELECT COUNT(*) AS n FROM x WHERE {' AND '.join(f'c0 > {n}' for n in range(MANY // 4))}",
    f"SELECT COUNT(*) AS n FROM x GROUP BY {','.join(f'c{n % 50} + {n}' for n in range(MANY // 4))}",
    f"SELECT {','.join(f'COUNT(DISTINCT c{n % 50}) AS a{n}' for n in range(MANY // 8))} FROM x",
    f"SELECT SUM({'CASE WHEN c0 > 1 THEN ' * 30}1{' END' * 30}) AS n FROM x",
    f"SELECT COUNT(*) AS n FROM x WHERE {'ABS(' * 30}c0{')' * 30} > 1",
    f"SELECT COUNT(*) AS n FROM x WHERE c0 > 1 /* {'a' * 60_000} */",
)


@pytest.mark.parametrize("text", ACCEPTED, ids=lambda text: text[:40])
def test_what_is_just_accepted_is_planned_in_a_moment(text: str) -> None:
    began = time.process_time()
    plan_text(text, SCHEMA)
    assert time.process_time() - began < 1.0  # 0.2 s at most, on a core of its own


def test_many_tables_take_no_longer_than_a_few() -> None:
    """Each comes to 50 MB of one KiB; a hundred of them held an agent up for seconds."""
    data = encode(pa.table({"a": pa.array([0] * (6 << 20), pa.int64())}), small=True)

    def of(count: int) -> Definition:
        tables = tuple(Contents(f"t{number}", "t.csv", data) for number in range(count))
        schema = Schema((Column("ts", "timestamp"),), "ts")
        return Definition("SELECT COUNT(*) AS n FROM s WINDOWING 1 SECONDS", (("s", schema),), tables)

    assert not why_not(of(3))
    assert "use fewer or shorter expressions, smaller tables" in why_not(of(100))


def test_a_text_at_the_limits_is_read() -> None:
    assert len(parse(";".join(["SHOW JOBS"] * fuel.STATEMENTS_MAX))) == fuel.STATEMENTS_MAX
    with pytest.raises(QueryError, match="at most 64 statements"):
        parse(";".join(["SHOW JOBS"] * (fuel.STATEMENTS_MAX + 1)))
    deep = fuel.DEPTH_MAX // 2  # the tests have a stack of their own
    plan_text(f"SELECT COUNT(*) AS n FROM x WHERE {'(' * deep}c0 > 1{')' * deep}", SCHEMA)


# -- what a peer says ----------------------------------------------------------------------------------------


class Stranger:
    """A TCP client that speaks as a peer."""

    def __init__(self, transport: ZeroMqTransport, agent: str) -> None:
        self._transport = transport
        self._agent = agent
        self.address = transport.address

    def say(self, message: codec.Message) -> None:
        self._transport.send(self._agent, codec.encode(message, cluster=CLUSTER, sender=self.address))

    def say_frames(self, frames: list[bytes]) -> None:
        self._transport.send(self._agent, frames)

    async def ask(self, request: Request) -> Answer:
        self.say(request)
        async with asyncio.timeout(ANSWER_SECS):
            while True:
                _, frames, _ = await self._transport.receive()
                answer = codec.decode(frames, cluster=CLUSTER, max_bytes=1 << 24).message
                if isinstance(answer, Answer) and answer.id == request.id:
                    return answer


@contextlib.asynccontextmanager
async def stranger(fleet: Fleet) -> AsyncIterator[Stranger]:
    key = read_loopback(loopback_file())
    transport = await ZeroMqTransport.listen("127.0.0.1:0", security=key)
    try:
        yield Stranger(transport, fleet.agents[0].address)
    finally:
        await transport.close()


CONDITIONS = (
    "1 = 1; COPY (SELECT 1) TO '{out}'",
    "TRUE) TO '{out}'; --",
    "id > 0) AS _wanted FROM lines; COPY (SELECT 1) TO '{out}'; SELECT (1",
    "(SELECT content FROM read_text('{secret}')) LIKE '%'",
    "EXISTS (SELECT 1 FROM read_text('{secret}'))",
    "getenv('HOME') <> ''",
    "r.\"id\" IS NOT NULL AND sniff_csv('{secret}') IS NULL",
    "id IN (SELECT 1 FROM glob('/etc/*'))",
    "id = 1 GROUP BY id",
    "id = 1 WINDOWING 1 SECONDS",
)


async def test_a_peer_s_condition_is_a_condition_and_nothing_else(one: Fleet, tmp_path: Path) -> None:
    out, agent = written(tmp_path), one.agents[0]
    columns = (Column("id", "bigint"), Column("product", "text"))

    def sample(number: int, where: str) -> inquiries.SampleRows:
        return inquiries.SampleRows(
            id=number,
            origin=them.address,
            stream=STREAM,
            row_sample=f"peek {number}",
            columns=columns,
            where=where,
            rows_max=10,
            lines_max=10,
            bytes_max=1 << 20,
        )

    def look(number: int, query: str) -> inquiries.LookAt:
        return inquiries.LookAt(
            id=number, origin=them.address, stream=STREAM, query=query, columns=columns, bytes_max=1 << 10
        )

    async with await connected(one, 0), stranger(one) as them:
        for number, where in enumerate(CONDITIONS, 1):
            text = where.format(out=out, secret=SECRET)
            for asked in (
                sample(number, text),
                look(number + 1_000, f"SELECT id FROM x WHERE {text} LIMIT 9"),
            ):
                answer = await them.ask(asked)
                assert answer.error, where
                assert answer.body == b""
        for number, query in enumerate(("SELECT 1", "DROP JOB x", "SELECT COUNT(*) FROM x LIMIT 1"), 2_000):
            assert (await them.ask(look(number, query))).error == "one SELECT without groups is wanted"
        good = sample(100, "id > 0")
        assert not (await them.ask(good)).error
        agent.append([(time.time_ns() // 1000, "Doom", 1)])
        async with asyncio.timeout(ANSWER_SECS):
            rows = b""
            while not rows:
                await asyncio.sleep(0.1)
                answer = await them.ask(good)
                rows = msgspec.msgpack.decode(answer.body, type=inquiries.SampledRows).rows
        shown = []
        for number, bytes_max in ((3_000, 1 << 10), (3_001, 1)):
            request = msgspec.structs.replace(look(number, "SELECT id FROM x LIMIT 3"), bytes_max=bytes_max)
            found = msgspec.msgpack.decode((await them.ask(request)).body, type=inquiries.SampledRows)
            shown.append((len(decode(found.rows)) if found.rows else 0, found.hidden, found.unseen))
        kept = shown[0][2]
        assert 1 <= kept <= 3
        assert shown == [(kept, 0, kept), (0, kept, kept)]
    assert not out.exists()


QUERY = f"SELECT COUNT(*) AS n FROM {STREAM} WINDOWING 1 SECONDS"
STREAMS = ((STREAM, Schema((Column("id", "bigint"), Column("created_at", "timestamp")), "created_at")),)


def forged(sql: str) -> list[bytes]:
    """The creation of a job with another text than its planner took."""
    definition = Definition(QUERY, STREAMS)
    spec = JobSpec("forged", "eve", 0, definition)
    asked = groups.CreateJob(id=7, origin="127.0.0.1:1", spec=spec, replace=False)
    msgspec.structs.force_setattr(definition, "sql", sql)
    return codec.encode(asked, cluster=CLUSTER, sender="127.0.0.1:1")


@pytest.mark.parametrize(
    "sql",
    [
        f"{QUERY}; COPY (SELECT 1) TO '/tmp/out'",
        "COPY (SELECT 1) TO '/tmp/out'",
        f"SELECT COUNT(*) AS n FROM read_csv('{SECRET}') WINDOWING 1 SECONDS",
        "SELECT MAX(getenv('HOME')) AS n FROM clicks WINDOWING 1 SECONDS",
        "SELECT r._pane AS _pane, COUNT(*) AS s0 FROM rows AS r GROUP BY ALL",
        f"SELECT {'(' * 1000}",
    ],
)
def test_a_job_whose_text_is_no_query_is_no_message(sql: str) -> None:
    assert codec.decode(forged(QUERY), cluster=CLUSTER, max_bytes=1 << 20)
    with pytest.raises(FrameRefused, match="fields"):
        codec.decode(forged(sql), cluster=CLUSTER, max_bytes=1 << 20)


async def test_a_forged_job_is_dropped_and_the_agent_goes_on(one: Fleet) -> None:
    async with await connected(one, 0) as client, stranger(one) as them:
        for sql in (f"{QUERY}; COPY (SELECT 1) TO '/tmp/out'", "SELECT * FROM read_text('/etc/passwd')"):
            them.say_frames(forged(sql))
        key = app_id("forged", "eve")
        peer = Peer(them.address, 1)
        for sql in ("", "COPY"):
            spec = msgspec.msgpack.encode({"name": "x", "definition": [sql, []]})
            them.say(ring.Route(sender=peer, token=1, key=key, origin=peer, number=1, hops=0, payload=spec))
        assert (await client.sql("SHOW JOBS")).table is None
        await a_line_is_read(one, client)
        await client.sql(f"CREATE JOB honest AS {QUERY}")
        await client.sql("DROP JOB honest")


def test_no_message_has_a_place_for_sql_of_an_engine() -> None:
    """``tests/agents/wire.txt`` has every field of every message and record."""
    wire = (Path(__file__).parents[1] / "agents" / "wire.txt").read_text()
    assert "sql str" in wire
    for word in ("map_sql", "where_sql", "final_sql", "spark_sql", "Fragment", "Plan", "StreamJoin", "Stage"):
        assert word not in wire.replace("PaneRequest", "")
    holders = [line.partition(":")[0] for line in wire.splitlines() if " sql str" in line]
    assert sorted(holders) == ["Definition", "Read", "TapDefinition", "job.Execute"]


# -- DuckDB itself -------------------------------------------------------------------------------------------

ATTEMPTS = (
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM glob('/etc/*')",
    "SELECT getenv('HOME')",
    "SELECT * FROM secret",
    "ATTACH '{out}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{out}'",
    "COPY (SELECT 1) TO '{out}'",
    "EXPORT DATABASE '{out}'",
    "PRAGMA enable_profiling",
    "SET profiling_output = '{out}'",
    "SET temp_directory = '/tmp'",
    "SET enable_external_access = true",
    "RESET enable_external_access",
    "SET lock_configuration = false",
    "SET allowed_configs = ['lock_configuration']",
    "SET TimeZone = 'Europe/Oslo'",
    "SET python_enable_replacements = true",
)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_duckdb_is_locked(attempt: str, tmp_path: Path) -> None:
    secret = pa.table({"n": [1]})  # a replacement scan would find it
    out, connection = written(tmp_path), instance().cursor()
    with pytest.raises(duckdb.Error):
        connection.execute(attempt.format(out=out, secret=SECRET))
    assert not out.exists()
    assert secret.num_rows == 1
    assert connection.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]


@pytest.mark.parametrize(
    "sql",
    ["SELECT 1; SELECT 2", "SELECT 1; COPY (SELECT 1) TO 'x'", "COPY (SELECT 1) TO 'x'", "", "SET x = 1"],
)
def test_what_duckdb_runs_is_one_select(sql: str) -> None:
    with pytest.raises(ElfBug, match="one SELECT"):
        one_select(instance(), sql)
    with pytest.raises(ElfBug, match="one SELECT"):
        Statement(sql, "rows", pa.schema([pa.field("n", pa.int64())]))
    assert one_select(instance(), "SELECT 1;")


def test_a_table_is_read_from_the_file_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    (tmp_path / "b.csv").write_text("n\n2\n")
    (tmp_path / "*.csv").write_text("n\n3\n")
    assert read_table(str(tmp_path / "a.csv"))
    with pytest.raises(UserError, match="cannot be read"):
        read_table(str(tmp_path / "*.csv"))
    assert json.dumps(sorted(path.name for path in tmp_path.iterdir())) == '["*.csv", "a.csv", "b.csv"]'
