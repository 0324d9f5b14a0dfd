"""The receiver of the forward protocol: records, chunks that are acknowledged, keys, and what is refused."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from agents.receiving import unpacking
from agents.receiving.forward import Boundary, NoMessage, read
from tests.support.forwarding import entries, forward, forward_array, pack
from tests.support.receiving import Side, ended, post, receiving

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


async def test_a_record_is_a_line(tmp_path: Path) -> None:
    async with receiving(tmp_path, "forward", "json") as side:
        record = {"message": "a\nb", "n": 1, "deep": {"x": [None, b"\xff"]}, "tag": "its own"}
        await forward(
            side, ["web", 1_800_000_000, record], ["web", [[1.5, {"@timestamp": "x"}]]], ["web", b""]
        )
        await side.until(
            '{"@timestamp":"2027-01-15T08:00:00.000000Z","tag":"its own","message":"a\\nb","n":1,'
            '"deep":{"x":[null,"/w=="]}}',
            '{"@timestamp":"x","tag":"web"}',
        )


async def test_fluentds_own_sender(tmp_path: Path) -> None:
    sender = pytest.importorskip("fluent.sender")
    async with receiving(tmp_path, "forward", "json") as side:

        def send() -> bool:
            one = sender.FluentSender("app", "127.0.0.1", side.at[1], nanosecond_precision=True)
            sent = one.emit_with_time("x", sender.EventTime(1_800_000_000.5), {"k": [1, 2.5, None, "é"]})
            one.close()
            return bool(sent)

        assert await asyncio.to_thread(send)
        await side.until('{"@timestamp":"2027-01-15T08:00:00.500000Z","tag":"app.x","k":[1,2.5,null,"é"]}')


async def test_a_chunk_that_is_sent_again_is_acknowledged_again_and_taken_once(tmp_path: Path) -> None:
    async with receiving(tmp_path, "forward") as side:
        message: list[object] = ["tag", entries(["one"]), {"chunk": "c1"}]
        assert await forward(side, message, message) == ["c1", "c1"]
        assert await forward(side, message, ["tag", entries(["two"]), {"chunk": "c2"}]) == ["c1", "c2"]
        await side.until("one", "two")
        assert side.read.spool.repeated == 2


async def test_what_is_no_entry_is_a_rejected_line_and_what_is_with_it_is_not(tmp_path: Path) -> None:
    async with receiving(tmp_path, "forward") as side:
        bad = b"\x92\x01\x81\xa3log\xa2\xff\xfe"
        block = pack([1, {"log": "good"}]) + bad + pack([1, {"log": "fine"}])
        assert await forward(side, ["tag", block, {"chunk": "c", "size": 3}]) == ["c"]
        assert await forward(side, ["tag", [[None, {}], "x", [1e300, {}]], {"chunk": "d"}]) == ["d"]
        await side.until("good", "fine", "[None, {}]", "'x'", "[1e+300, {}]")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xc1", "malformed"),
        (b"GET / HTTP/1.1\r\n", "malformed"),
        (b"\x91" * 40, "malformed"),
        (b"\x92\xa1t\xc0", "malformed"),
        (pack(["tag", b"\x92", {}]), "malformed"),
        (pack(["tag", b"no gzip", {"compressed": "gzip"}]), "malformed"),
        (pack(["tag", b"", {"compressed": "zstd"}]), "malformed"),
        (pack(["tag", gzip.compress(b"\xc0" * 200_000), {"compressed": "gzip"}]), "large"),
        (b"\x92\xa1t\xc6\xff\xff\xff\xff" + b"x" * 110_000, "large"),
        (b"\xdd\xff\xff\xff\xff" * 20 + b"\xc0" * 110_000, "large"),
    ],
)
async def test_what_is_no_message_ends_the_connection(tmp_path: Path, data: bytes, reason: str) -> None:
    async with receiving(tmp_path, "forward", body_bytes_max=100_000) as side:
        reader, writer = await asyncio.open_connection(*side.at)
        writer.write(data)
        assert await ended(reader)
        writer.close()
        await side.refused(reason)
        assert side.look() == []


async def test_a_tag_that_is_in_each_line_is_bounded(tmp_path: Path) -> None:
    async with receiving(tmp_path, "forward", "json", body_bytes_max=10_000) as side:
        assert await forward(side, ["t" * 5_000, [[1, {}]] * 20, {"chunk": "c"}]) == []
        await side.refused("large")
        assert side.look() == []


def test_a_message_of_many_values_is_not_looked_through() -> None:
    many = b"\x93\xa1t\xdd" + (1 << 20).to_bytes(4, "big") + b"\xc0" * 10
    with pytest.raises(unpacking.TooLarge):
        Boundary().end(many)
    with pytest.raises(NoMessage, match="and not 1000000"):
        read(b"\xdd" + (1_000_000).to_bytes(4, "big") + b"\xc0", 10, 10, whole=True)


async def test_records_are_bounded_however_small_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.receiving.records.RECORDS_MAX", 10)
    async with receiving(tmp_path / "forward", "forward") as side:
        few, many = pack([1, {"log": "a"}]) * 10, pack([1, {"log": "b"}]) * 11
        for options in ({}, {"size": 11}):
            assert await forward(side, ["t", many, {"chunk": "c"} | options]) == []
        assert await forward(side, ["t", few, {"chunk": "c", "size": 10}]) == ["c"]
        await side.until(*["a"] * 10)
    pytest.importorskip("opentelemetry.proto")
    async with receiving(tmp_path / "otlp", "otlp") as side:
        for count, status in ((10, 200), (11, 413)):
            body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{}] * count}]}]}).encode()
            assert (await post(side, body, "/v1/logs", content_type="application/json"))[0] == status


async def test_what_connections_hold_together_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.receiving.forward.HELD_BYTES_MAX", 1_000)
    async with receiving(tmp_path, "forward") as side:
        half = b"\x92\xa1t\xc6\x00\x00\xff\xff" + b"x" * 600
        _, first = await asyncio.open_connection(*side.at)
        first.write(half)
        await asyncio.sleep(0.02)
        reader, second = await asyncio.open_connection(*side.at)
        second.write(half)
        assert await ended(reader)
        await side.refused("busy")
        first.close()
        second.close()
        await asyncio.sleep(0.02)
        assert await forward_array(side, ["nothing is held any more"])


async def test_who_has_no_key_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.receiving.forward.WAIT_SECS", 0.05)
    token = tmp_path / "key"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    async with receiving(tmp_path / "s", "forward", token_file=str(token)) as side:
        for data, reason in ((b"", "slow"), (b"\x96\xc6\x00\x00\xff\xff" + b"x" * 5_000, "large")):
            reader, writer = await asyncio.open_connection(*side.at)
            writer.write(data)
            assert b"HELO" in await reader.read()
            await side.refused(reason)
            writer.close()


async def test_a_shared_key(tmp_path: Path) -> None:
    token = tmp_path / "key"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)

    async def sent(side: Side, key: bytes) -> bool:
        reader, writer = await asyncio.open_connection(*side.at)
        name, helo = msgspec.msgpack.decode(await reader.read(1_000))
        assert name == "HELO"
        digest = hashlib.sha512(b"salt" + b"web-1" + helo["nonce"] + key).hexdigest()
        writer.write(pack(["PING", "web-1", b"salt", digest, "", ""]))
        _, right, _, host, proof = msgspec.msgpack.decode(await reader.read(1_000))
        assert not right or proof == hashlib.sha512(b"salt" + host.encode() + helo["nonce"] + key).hexdigest()
        writer.write(pack(["tag", 1, {"log": "text"}]))
        writer.close()
        return bool(right)

    async with receiving(tmp_path / "s", "forward", token_file=str(token)) as side:
        assert not await sent(side, b"another")
        await side.refused("token")
        assert await sent(side, b"0123456789abcdef")
        await side.until("text")
