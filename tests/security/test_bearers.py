"""HTTP where other machines can reach it: over TLS, for those who show a person's token, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import shutil
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from agents.bearers import Tls
from agents.connections import Bounds
from agents.http import HttpServer
from agents.keyring import Keyring, open_keyring
from agents.loading import load
from elf.errors import ConfigError, UserError
from elf.security.bearer import LASTS_SECS_MAX, bearer
from elf.security.folder import load as load_keys
from elf.security.keys import KeyPair
from tests.support.commands import elf_beside
from tests.support.facts import Status
from tests.support.keys import Authority
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
FACTS = ("/metrics", "/api/v1/jobs", "/api/v1/jobs/busy/windows", "/nothing")


class Place:
    """A fleet's keys, and a certificate for TLS."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.authority.enrol("agent", "web-0")
        self.authority.enrol("person", "rita", "read")
        self.authority.enrol("person", "tom", "tap")
        self.authority.enrol("person", "eve", "read", lasts=-5)
        self.authority.enrol("person", "stranger", "read", known=False)
        self.authority.enrol("token", "tok", uses=1)
        self.keyring = Keyring("keys", keys=load_keys(self.authority.written("web-0")))
        self.tls = Tls(str(folder / "cert.pem"), str(folder / "key.pem"))
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        made += ["-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        made += ["-keyout", self.tls.key, "-out", self.tls.certificate]
        subprocess.run(made, check=True, capture_output=True, timeout=30)

    def text(self, name: str, lasts: int = 60, ago: int = 0, cluster: str = "test") -> str:
        pair, _ = self.authority.owners[name]
        return bearer(pair, cluster, int(time.time()) - ago, lasts)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


@pytest.fixture
async def server(place: Place) -> AsyncIterator[HttpServer]:
    made = HttpServer("127.0.0.1:0", Status(), look=place.keyring.refused_reader, tls=place.tls)
    await made.start()
    yield made
    await made.stop()


async def asked(server: HttpServer, place: Place, path: str, shown: str | None = None) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        trust = ssl.create_default_context(cafile=place.tls.certificate)
        connection = http.client.HTTPSConnection("localhost", server.port, timeout=10, context=trust)
        connection.request("GET", path, headers={} if shown is None else {"Authorization": shown})
        answer = connection.getresponse()
        status = answer.status
        body = answer.read1(4_096).decode()
        connection.close()
        return status, body

    return await asyncio.to_thread(ask)


async def test_facts_are_for_those_with_a_token(server: HttpServer, place: Place) -> None:
    for path in FACTS:
        status, body = await asked(server, place, path)
        assert (status, "a token is wanted" in body) == (401, True), path
    for path in FACTS[:2]:  # there are facts
        assert (await asked(server, place, path, f"Bearer {place.text('rita')}"))[0] == 200
    for path in ("/health", "/ready"):
        assert (await asked(server, place, path))[0] == 200


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("tom", 403, "needs the role read, which tom does not have"),
        ("eve", 401, "nobody's, has expired or was revoked"),
        ("stranger", 401, "nobody's, has expired or was revoked"),
        ("tok", 401, "nobody's, has expired or was revoked"),
        ("web-0", 401, "nobody's, has expired or was revoked"),
    ],
)
async def test_only_a_persons_key_with_that_role_counts(
    server: HttpServer, place: Place, name: str, status: int, says: str
) -> None:
    found, body = await asked(server, place, "/api/v1/jobs", f"Bearer {place.text(name)}")
    assert (found, says in json.loads(body)["error"]) == (status, True)


async def test_what_is_old_forged_or_for_others_is_none(server: HttpServer, place: Place) -> None:
    good = place.text("rita")
    foreign = bearer(KeyPair.new(), "test", int(time.time()))
    changed = good[:20] + ("A" if good[20] != "A" else "B") + good[21:]
    wrong = {
        place.text("rita", lasts=5, ago=10): "expired",
        place.text("rita", ago=-3_600): "expired",
        place.text("rita", cluster="other"): "another cluster",
        foreign: "nobody's",
        changed: "signature of this token is wrong",
        good[:-4]: "",
        "elf_" + "A" * 2_000: "no token",
        "elf_": "no token",
        "": "a token is wanted",
        "\xff": "no token",
    }
    for text, says in wrong.items():
        status, body = await asked(server, place, "/metrics", f"Bearer {text}")
        assert (status, says in body) == (401, True), (text, body)
    assert (await asked(server, place, "/metrics", f"Basic {good}"))[0] == 401
    with pytest.raises(UserError, match="at most 31 days"):
        place.text("rita", lasts=LASTS_SECS_MAX + 1)


async def test_a_token_ends_with_its_key(server: HttpServer, place: Place) -> None:
    place.authority.enrol("person", "bob", "read")
    _, signed = place.authority.owners["bob"]
    assert not place.keyring.take(signed)
    text = place.text("bob")
    assert (await asked(server, place, "/metrics", f"Bearer {text}"))[0] == 200
    assert not place.keyring.take(place.authority.revocation("bob"))
    assert (await asked(server, place, "/metrics", f"Bearer {text}"))[0] == 401


async def test_a_stream_ends_with_its_token(place: Place) -> None:
    status = Status()
    look, tls = place.keyring.refused_reader, place.tls
    made = HttpServer("127.0.0.1:0", status, look=look, tls=tls, keep_alive_secs=0.2)
    await made.start()

    def stream() -> bytes:
        trust = ssl.create_default_context(cafile=place.tls.certificate)
        connection = http.client.HTTPSConnection("localhost", made.port, timeout=10, context=trust)
        shown = {"Authorization": f"Bearer {place.text('rita', lasts=3)}"}
        connection.request("GET", "/api/v1/jobs/top%20ten/windows", headers=shown)
        return connection.getresponse().read()

    assert b": still here" in await asyncio.to_thread(stream)
    await eventually(lambda: not status.readers, "its windows are let go of")
    await made.stop()


async def test_elf_keys_bearer_makes_one(server: HttpServer, place: Place) -> None:
    done = await elf_beside("keys", "bearer", "--dir", str(place.authority.written("rita")))
    assert done.returncode == 0, done.stderr
    assert (await asked(server, place, "/metrics", f"Bearer {done.stdout.strip()}"))[0] == 200


async def test_what_is_not_tls_is_not_answered(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"HTTP/" not in await asyncio.wait_for(reader.read(100), 10)
    writer.close()


@pytest.fixture
async def small(place: Place) -> AsyncIterator[tuple[HttpServer, Counter[str]]]:
    """It bears few connections, and not for long; and what it refuses."""
    refused: Counter[str] = Counter()
    bounds = Bounds(connections=12, an_address=4, wait_secs=1.0)
    made = HttpServer(
        "127.0.0.1:0",
        Status(),
        look=place.keyring.refused_reader,
        tls=place.tls,
        bounds=bounds,
        refused=lambda why: refused.update([why]),
    )
    await made.start()
    yield made, refused
    await made.stop()


async def test_handshakes_that_do_not_end_are_bounded_by_address(
    small: tuple[HttpServer, Counter[str]], place: Place
) -> None:
    """They are connections like any other, of which each address has so many, and all together."""
    server, refused = small
    open_ones = []
    for number in range(40):
        source = (f"127.0.0.{2 + number // 20}", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=source)
        writer.write(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
        open_ones.append(writer)
    await eventually(lambda: refused["full"] >= 32, "most of them are cut")
    assert (await asked(server, place, "/health"))[0] == 200
    assert refused["full"] == 32
    for writer in open_ones:
        writer.close()


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01", b"GET /health HTTP/1.1\r\n\r\n"])
async def test_a_handshake_has_as_long_as_a_request(
    small: tuple[HttpServer, Counter[str]], said: bytes
) -> None:
    server, refused = small
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(said)
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 5)
    await eventually(lambda: refused.total() == 1, "it is counted")
    writer.close()


async def test_what_comes_right_behind_the_handshake_is_heard(server: HttpServer, place: Place) -> None:
    """In the same packet, as TLS 1.3 may send it."""
    trust = ssl.create_default_context(cafile=place.tls.certificate)
    for _ in range(20):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=trust, server_hostname="localhost"
        )
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_server_that_stops_waits_for_no_handshake(place: Place) -> None:
    server = HttpServer("127.0.0.1:0", Status(), look=place.keyring.refused_reader, tls=place.tls)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    await asyncio.sleep(0.1)
    await asyncio.wait_for(server.stop(), 5)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 1) == b""
    writer.close()


def test_http_for_others_wants_keys_and_tls(tmp_path: Path, place: Place) -> None:
    def problem(**http: str) -> str:
        file = tmp_path / "elf.yaml"
        keys = str(place.authority.written("web-0"))
        settings = {"data_dir": str(tmp_path), "keys": keys, "http": {"listen": "0.0.0.0:0", **http}}
        file.write_text(yaml.safe_dump(settings))
        try:
            open_keyring(load(file, {}))
        except ConfigError as error:
            return str(error)
        return ""

    assert "set http.tls_cert and http.tls_key" in problem()
    assert not problem(tls_cert=place.tls.certificate, tls_key=place.tls.key)
    assert "no such file" in problem(tls_cert="/nowhere.pem", tls_key=place.tls.key)
