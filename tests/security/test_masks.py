"""The owner's word: what a host masks is seen by nobody, however they ask and wherever they look.

The oracle is the format itself: what it finds in a masked line is what it finds in the line as it was, with
the masked columns masked, value by value."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from agents.formats import get_format
from agents.formats.access import COLUMNS, EXTRA_TEXT
from agents.loading import load
from agents.masks import KEY_FILE, WITHHELD, masked, read_key, truncated
from agents.settings.tree import ConfigProblems
from agents.tasks.extracting import Extractor
from agents.tasks.jsonmasks import JsonMask
from agents.tasks.masking import AccessMask, lines_of
from elf.client import connect
from elf.errors import ElfError, UserError
from elf.job.ports import Wanted
from elf.schema import Column
from tests.support.access_lines import PIECES
from tests.support.fleet import Agent, Fleet
from tests.support.waiting import eventually

KEY = b"k" * 32

CLIENTS = (
    *("203.0.113.77", "203.0.113.77, 10.9.8.7", "web-1.example:80 203.0.113.77", "web-1 203.0.113.77"),
    *(
        "203.0.113.77:4711",
        "[2001:db8:1:2::77]:80",
        "2001:db8:1:2::77",
        "::ffff:203.0.113.77",
        "host.example",
    ),
    *("unix:", "-", "v:443 host.example"),
)
USERS = ("-", "bob", "Ann Bee", '""', "x-y", "-")
REQUESTS = (
    *("GET /a?token=s3cret&x=1 HTTP/1.1", "GET / HTTP/1.1", "GET /a b?token=s3cret HTTP/1.0", "GET /x?"),
    *(
        r"\x16\x03s3cret",
        "-",
        "",
        "token=s3cret",
        r"GET /q?a=\"s3cret\" HTTP/2.0",
        "POST  /a?s3cret=?? HTTP/1.1",
    ),
)
REFERERS = ("-", "", "http://r/?s3cret")
AGENTS = ("-", r"U \\ A")
MASKS: tuple[dict[str, str], ...] = (
    {"c_ip": "truncate"},
    {"c_ip": "hash"},
    {"c_ip": "drop", "cs_username": "hash"},
    {"cs_uri_query": "drop"},
    {"cs_uri_query": "hash", "cs_referer": "drop", "extra": "hash"},
    {"cs_request": "hash", "cs_user_agent": "drop"},
)


def lines(combined: bool) -> list[str]:
    rng = random.Random(1)
    found = []
    for client, user, request in itertools.product(CLIENTS, USERS, REQUESTS):
        identity = "-" if " " in user or '"' in user else rng.choice(("-", "-", "ident"))
        size = rng.choice(("-", "7"))
        line = f'{client} {identity} {user} [10/Oct/2000:13:55:36 -0700] "{request}" 200 {size}'
        if combined:
            line += f' "{rng.choice(REFERERS)}" "{rng.choice(AGENTS)}"'
        found.append(line + rng.choice(("", ' "203.0.113.77"', " 203.0.113.77 x", " ")))
    for _ in range(4_000):
        one = {name: rng.choice(pool) for name, pool in PIECES.items()}
        line = '{front}1.2.3.4 - {user} [{date}] "{request}" {mid}'.format(**one)
        if combined:
            line += ' "{quoted}" "{quoted}"'.format(**one)
        found.append(line + one["tail"])
    return found


def columns_of(name: str, of: pa.StringArray) -> tuple[list[dict[str, object]], list[int]]:
    columns = (*COLUMNS, Column(EXTRA_TEXT, "text"))
    extractor = Extractor(get_format(name), "ts", Wanted(columns))
    with contextlib.closing(extractor):
        found = extractor.extract(of)
    return found.table.to_pylist(), found.accepted.tolist()


def expected(row: dict[str, object], mask: Mapping[str, str]) -> dict[str, object]:
    """Column by column; what is part of a masked one, or has it as its part, follows."""
    found = dict(row)
    for own, how in {"extra": "drop", **mask}.items():
        name = EXTRA_TEXT if own == "extra" else own
        value = row[name]
        found[name] = masked(how, value if isinstance(value, str) else None, KEY)
    if "cs_request" in mask:
        found |= dict.fromkeys(("cs_method", "cs_uri_stem", "cs_uri_query", "cs_version"))
    elif "cs_uri_query" in mask:
        query = "" if found["cs_uri_query"] is None else f"?{found['cs_uri_query']}"
        parts = (row["cs_method"], f"{row['cs_uri_stem'] or '-'}{query}", row["cs_version"])
        found["cs_request"] = " ".join(str(part) for part in parts if part is not None)
        if row["cs_method"] is None:
            found |= dict.fromkeys(("cs_request", "cs_uri_stem", "cs_uri_query", "cs_version"))
    if "c_ip" in mask:  # a virtual host is certain in front of an address, or with a port
        truncates = mask["c_ip"] == "truncate"
        if found["c_ip"] is None or (not truncates and row["s_port"] is None):
            found |= {"cs_host": None, "s_port": None}
    return found


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("name", ["combined", "common"])
def test_a_masked_line_is_the_line_with_masked_columns(name: str, mask: dict[str, str]) -> None:
    before = pa.array([*lines(name == "combined"), "junk 203.0.113.77", ""])
    rewriting = AccessMask(get_format(name), mask, KEY)
    with contextlib.closing(rewriting):
        after = rewriting.mask(before)
    rows, accepted = columns_of(name, before)
    seen, kept = columns_of(name, after)
    assert kept == accepted, "the same lines parse"
    assert len(before) - 500 > len(accepted) > 1_000
    for line, row, found in zip((before[at].as_py() for at in accepted), rows, seen, strict=True):
        assert found == expected(row, mask), line
    for at in {*range(len(before))} - {*accepted}:
        assert after[at].as_py() == WITHHELD
    if "c_ip" in mask:
        assert not [line for line in after.to_pylist() if "203.0.113.77" in line or "::77" in line]
    if "cs_request" in mask or {"cs_uri_query", "cs_referer"} <= mask.keys():
        assert not [line for line in after.to_pylist() if "token=s3cret" in line]


JSON_LINES = (
    '{"ip":"203.0.113.77","n":1.50,"big":123456789012345678901,"a":{"ip":"x"}}',
    '{"\\u0069p":"203.0.113.77"}',
    '{"ip":"203.0.113.77","ip":"203.0.113.77"}',
    '{"ip":["203.0.113.77"],"u":{"deep":"203.0.113.77"}}',
    ' {"ip" : "203.0.113.77:80" , "u":"s3cret"}',
    '{"ip":null,"u":7}',
    '{"n":1}',
)
NO_JSON = (
    '["203.0.113.77"]',
    '{"ip":"203.0.113.77",}',
    "203.0.113.77",
    '{"ip":"203.0.113.77"',
    "[" * 5000,
    "",
)


@pytest.mark.parametrize("how", ["truncate", "hash", "drop"])
def test_json_keeps_all_but_what_is_masked(how: str) -> None:
    rewriting = JsonMask({"ip": how, "u": "hash"}, KEY)
    after = rewriting.mask(pa.array([*JSON_LINES, *NO_JSON])).to_pylist()
    for line, found in zip(JSON_LINES, after, strict=False):
        was, now = json.loads(line), json.loads(found)
        assert was.keys() == now.keys()
        for name, value in was.items():
            if name == "ip":
                text = value if isinstance(value, str) else None if how == "truncate" or value is None else ""
                assert now[name] == (masked(how, text, KEY) if text != "" else now[name])
            elif name != "u":
                assert now[name] == value
        assert "203.0.113.77" not in found
        assert "s3cret" not in found
    assert '"n":1.50' in after[0]
    assert '"big":123456789012345678901' in after[0]
    assert after[len(JSON_LINES) :] == [WITHHELD] * len(NO_JSON)


def test_json_is_masked_within_objects_and_arrays() -> None:
    lines = [
        '{"a":{"IP":"203.0.113.77","n":1.50},"A.ip":"203.0.113.77"}',
        '{"a":[{"ip":"203.0.113.77"},{"b":{"ip":1}},7],"b":"203.0.113.77"}',
        '{"a":"203.0.113.77","c":{"ip":{"of":"203.0.113.77"}}}',
    ]
    rewriting = JsonMask({"a.ip": "drop", "C": "hash"}, KEY)
    assert rewriting.mask(pa.array([*lines, '{"a":{"ip":1}'])).to_pylist() == [
        '{"a":{"IP":null,"n":1.50},"A.ip":null}',
        '{"a":[{"ip":null},{"b":{"ip":1}},7],"b":"203.0.113.77"}',
        f'{{"a":"203.0.113.77","c":"{masked("hash", lines[2][24:-1], KEY)}"}}',
        WITHHELD,
    ]


PROXIED = {
    "caddy": '{"ts":1.5,"request":{"remote_ip":"203.0.113.77","client_ip":"203.0.113.77",'
    '"uri":"/x?a=s3cret?b","headers":{"X-Forwarded-For":["203.0.113.77, 203.0.113.78"],"Accept":["*"]}}}',
    "traefik": '{"StartUTC":"2026-11-26T20:00:00Z","ClientAddr":"203.0.113.77:99","ClientHost":"203.0.113.7",'
    '"RequestPath":"/x?a=s3cret?b","RequestLine":"GET /x?a=s3cret?b","request_X-Real-Ip":"203.0.113.77"}',
}


@pytest.mark.parametrize("name", PROXIED)
@pytest.mark.parametrize("how", ["truncate", "hash", "drop"])
def test_servers_that_write_json_have_an_address_in_several_places(name: str, how: str) -> None:
    query = "hash" if how == "truncate" else how
    rewriting = lines_of(get_format(name), {"c_ip": how, "cs_uri_query": query}, KEY)
    (left,) = rewriting.mask(pa.array([PROXIED[name]])).to_pylist()
    assert "203.0.113.7" not in left
    assert "s3cret" not in left
    assert ('"/x"' if how == "drop" else f'"/x?{masked("hash", "a=s3cret?b", KEY)}"') in left
    assert (left.count("203.0.113.0") > 1) == (how == "truncate")
    assert ('"headers":{' in left) == (name == "caddy")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.77", "203.0.113.0"),
        ("203.0.113.77:8080", "203.0.113.0"),
        ("[2001:db8:1:2::7]:80", "2001:db8:1::"),
        ("2001:DB8:1:2:3::7", "2001:db8:1::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:203.0.113.77", "203.0.113.0"),
        ("2002:cb00:714d::1", "203.0.113.0"),
        ("host.example", None),
        ("203.0.113.777", None),
        ("", None),
    ],
)
def test_networks(address: str, network: str | None) -> None:
    assert truncated(address) == network


@pytest.mark.parametrize("written", ["ip", "IP", "Ip", "\\u0069p"])
def test_a_column_is_masked_whatever_the_case_of_its_name(written: str) -> None:
    """A query finds it all the same."""
    line = f'{{"{written}":"203.0.113.77","n":1}}'
    (left,) = JsonMask({"Ip": "drop"}, KEY).mask(pa.array([line])).to_pylist()
    assert list(json.loads(left).values()) == [None, 1]


def test_hashes_are_this_hosts(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    key = read_key(one)
    assert (one / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert key == read_key(one) != read_key(other)
    assert masked("hash", "x", key) != masked("hash", "x", read_key(other))
    (one / KEY_FILE).write_bytes(b"")
    with pytest.raises(UserError, match=r"mask\.key is damaged"):
        read_key(one)


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (
            {"format": "combined", "mask": {"sc_status": "drop"}},
            "sc_status cannot be masked in",
        ),
        ({"format": "combined", "mask": {"cs_username": "truncate"}}, "holds no addresses to truncate"),
        ({"format": "json", "mask": {'"user.ip"': "hash"}}, "names keys by their path, such as user.address"),
        ({"format": "json", "timestamp": "at.utc", "mask": {"At": "hash"}}, "At is what elf itself goes by"),
        (
            {"format": "caddy", "mask": {"request": "drop", "ts": "drop"}},
            "ts cannot be masked in format caddy",
        ),
        ({"format": "traefik", "mask": {"startUTC": "drop"}}, "startUTC cannot be masked in format traefik"),
        ({"format": "caddy", "mask": {"SC_status": "hash"}}, "cannot be left as hash leaves it; drop it"),
        ({"format": "caddy", "mask": {"cs_uri_stem": "hash"}}, "cs_uri_stem cannot be masked"),
        ({"format": "json", "mask": {"ts": "drop"}}, "ts is what elf itself goes by"),
        ({"format": "json", "mask": {"TS": "drop"}}, "TS is what elf itself goes by"),
        ({"format": "json", "columns": {"N": "bigint"}, "mask": {"n": "hash"}}, "n is declared as bigint"),
        ({"format": "json", "timestamp": "at", "mask": {"at": "drop"}}, "at is what elf itself goes by"),
        ({"format": "json", "columns": {"n": "bigint"}, "mask": {"n": "hash"}}, "n is declared as bigint"),
        ({"format": "json", "mask": {"ip": "drop"}, "shared": ["/mnt/a"]}, "an agent masks or shares"),
        ({"format": "json", "mask": {"ip": "blur"}}, "must be one of truncate, hash, drop"),
    ],
)
def test_what_cannot_be_masked_is_refused(tmp_path: Path, stream: dict[str, object], why: str) -> None:
    file = tmp_path / "elf.yaml"
    file.write_text(yaml.safe_dump({"streams": {"here": {"include": ["/x"], **stream}}}))
    with pytest.raises(ConfigProblems, match=why):
        load(file, {})


# -- a real agent --------------------------------------------------------------------------------------------

SECRET_IP, SECRET = "203.0.113.77", "s3cret-token"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """With a JSON stream and an access log, both masked; their lines are written before it starts."""
    fleet = Fleet(tmp_path_factory.mktemp("masks"), 1)
    (agent,) = fleet.agents
    path = agent.write_config()
    config = yaml.safe_load(path.read_text())
    access = agent.folder / "logs" / "access.log"
    config["streams"]["clicks"]["mask"] = {"ip": "truncate", "product": "hash"}
    config["streams"]["access"] = {
        "include": [str(access)],
        "format": "combined",
        "mask": {"c_ip": "hash", "cs_uri_query": "drop"},
        "lateness_secs": 0.1,
    }
    path.write_text(yaml.safe_dump(config))
    agent.write_config = lambda: path  # type: ignore[method-assign]
    more(agent)
    agent.fork()
    yield agent
    fleet.stop()


def more(agent: Agent) -> None:
    now = time.time()
    moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now))
    with (agent.folder / "logs" / "access.log").open("a") as log:
        log.write(f'{SECRET_IP} - - [{moment}] "GET /a?t={SECRET} HTTP/1.1" 200 5 "-" "UA" "{SECRET_IP}"\n')
        log.write(f"junk {SECRET_IP} {SECRET}\n")
    with agent.log.open("ab") as log:
        row = {"created_at": now, "ip": SECRET_IP, "product": SECRET, "n": 1}
        log.write(json.dumps(row).encode() + b"\n")
        log.write(f"junk {SECRET_IP} {SECRET}\n".encode() + f"\xff{SECRET}\n".encode("latin-1"))


QUERIES = (
    "SELECT ip, product, COUNT(*) AS n FROM clicks GROUP BY 1, 2 WINDOWING 1 SECONDS",
    "SELECT c_ip, cs_request, cs_uri_query, COUNT(*) AS n FROM access GROUP BY 1, 2, 3 WINDOWING 1 SECONDS",
)


async def windows_of(agent: Agent, job: str) -> str:
    async with (
        connect(agent.address, cluster=agent.cluster) as client,
        contextlib.aclosing(client.subscribe(job)) as windows,
    ):
        async for window in windows:
            if window.table.num_rows:
                return str(window.table.to_pylist())
    raise AssertionError


async def rows_of(agent: Agent, stream: str) -> str:
    async with (
        connect(agent.address, cluster=agent.cluster) as client,
        contextlib.aclosing(client.tap(stream)) as taps,
    ):
        async for tapped in taps:
            if tapped.rows is not None and tapped.rows.num_rows:
                return str(tapped.rows.to_pylist())
    raise AssertionError


async def test_nobody_sees_more(agent: Agent) -> None:
    """Queries, taps, metrics, the log, the archive, the reject file, the state: all files are searched."""

    async def made() -> bool:
        async with connect(agent.address, cluster=agent.cluster) as client:
            for number, query in enumerate(QUERIES):
                await client.sql(f"CREATE OR REPLACE JOB j{number} AS {query}")
        return True

    await eventually(made, "jobs over both streams", despite=(ElfError,))

    async def writing() -> None:
        while True:
            more(agent)
            await asyncio.sleep(0.2)

    writer = asyncio.create_task(writing())
    try:
        async with asyncio.timeout(60):
            numbers = range(len(QUERIES))
            said = await asyncio.gather(
                *(windows_of(agent, f"j{number}") for number in numbers),
                *(rows_of(agent, stream) for stream in ("clicks", "access")),
            )
    finally:
        writer.cancel()
    assert "203.0.113.0" in said[0]
    hashed = masked("hash", SECRET_IP, (agent.folder / "data" / KEY_FILE).read_bytes())
    assert hashed is not None
    assert hashed in said[1]
    assert "GET /a HTTP/1.1" in said[1]
    assert "203.0.113.0" in said[2]
    async with connect(agent.address, cluster=agent.cluster) as client:
        for number in range(len(QUERIES)):
            await client.compare_facts(f"j{number}")
    archived = [*(agent.folder / "archive").rglob("*.parquet")]
    assert archived
    rejects = [path.read_text() for path in (agent.folder / "data" / "rejects").iterdir()]
    assert all("invalid" in text or "no combined line" in text for text in rejects)
    agent.terminate()
    written = [path for path in agent.folder.rglob("*") if path.is_file() and path.parent.name != "logs"]
    contents = [path.read_bytes() for path in written]
    lines_of = [str(pq.read_table(path).to_pylist()) for path in archived]
    assert any(hashed in text for text in lines_of)
    for text in (*said, agent.said(), *lines_of):
        assert SECRET_IP not in text
        assert SECRET not in text
    for path, data in zip(written, contents, strict=True):
        assert SECRET_IP.encode() not in data, path
        assert SECRET.encode() not in data, path
