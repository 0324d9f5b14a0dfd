"""Receivers, one contract for all: what they take comes as lines in order, once, and what they do not take is
refused, counted, or waits."""

from __future__ import annotations

import asyncio
import gzip
import json
import lzma
import os
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agents.inputs.spool import Spool
from agents.receiving import intake, listening, unpacking
from agents.receiving.syslog import Syslog
from elf.addresses import split_address
from elf.errors import UserError
from tests.support.files import drain
from tests.support.forwarding import (
    entries,
    forward,
    forward_array,
    forward_each,
    forward_gzip,
    forward_packed,
)
from tests.support.receiving import LINE_BYTES_MAX, Side, ended, post, receiving, talk

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")


# -- the contract --------------------------------------------------------------------------------------------


async def syslog_lines(side: Side, texts: list[str]) -> bool:
    await talk(side, "".join(f"<13>Nov 26 20:00:00 web-1 nginx: {text}\n" for text in texts).encode())
    return True


async def syslog_counted(side: Side, texts: list[str]) -> bool:
    messages = [f"<13>1 2026-11-26T20:00:00Z web-1 nginx 1 - - {text}" for text in texts]
    await talk(side, "".join(f"{len(one.encode())} {one}" for one in messages).encode())
    return True


async def http(side: Side, texts: list[str]) -> bool:
    status, _ = await post(side, "".join(f"{text}\n" for text in texts).encode())
    return status == 202


async def http_gzip(side: Side, texts: list[str]) -> bool:
    body = gzip.compress("\n".join(texts).encode())
    status, _ = await post(side, body, chunked=True, content_encoding="gzip")
    return status == 202


Send = Callable[[Side, list[str]], Awaitable[bool]]
SENDERS: list[tuple[str, Send]] = [
    ("syslog", syslog_lines),
    ("syslog", syslog_counted),
    ("http", http),
    ("http", http_gzip),
    ("forward", forward_each),
    ("forward", forward_array),
    ("forward", forward_packed),
    ("forward", forward_gzip),
]


@pytest.mark.parametrize(("type", "send"), SENDERS)
async def test_the_contract(tmp_path: Path, type: str, send: Send) -> None:
    async with receiving(tmp_path, type, body_bytes_max=1 << 20, spool_bytes_max=200_000) as side:
        texts = [f"line {number} é" for number in range(200)]
        assert await send(side, texts[:150])
        assert await send(side, texts[150:])
        await side.until(*texts)
        assert {chunk.source.log for chunk in drain(side.read, 0)} <= {f"{type}:127.0.0.1"}
        assert side.read.positions()[1].path == f"{type}:127.0.0.1"
        # A line that is too long is rejected, and those beside it are not.
        before = side.read.counters
        assert await send(
            side, ["short", "x" * (LINE_BYTES_MAX + 9_000), "y" * (LINE_BYTES_MAX + 1), "after"]
        )
        await side.until(*texts, "short", "after")
        assert before.lost_bytes == 0
        # No room: either it says so, or it waits until there is some.
        side.fill()
        sending = asyncio.ensure_future(send(side, ["waits"]))
        await side.refused("full")
        if type == "http":
            assert not await sending
            side.free()
            sending = asyncio.ensure_future(send(side, ["waits"]))
        else:
            await asyncio.sleep(0.06)
            assert side.read.spool.take("x", b"x" * 900 + b"\n") is None
            side.free()
        assert await sending
        side.got = []
        await side.until("waits")


async def test_connections_are_bounded(tmp_path: Path) -> None:
    async with receiving(tmp_path, "syslog", transport=("tcp",), address_connections_max=2) as side:
        held = [await asyncio.open_connection(*side.at) for _ in range(2)]
        reader, third = await asyncio.open_connection(*side.at)
        assert await ended(reader)
        await side.refused("connections")
        third.close()
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.01)
        await syslog_lines(side, ["fine"])
        await side.until("fine")


async def test_who_begins_and_does_not_go_on_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "WAIT_SECS", 0.05)
    async with receiving(tmp_path, "syslog") as side:
        reader, writer = await asyncio.open_connection(*side.at)
        await asyncio.sleep(0.1)  # between messages nobody need say anything
        writer.write(b"<13>Nov 26 20:00:00 a b: whole\n<13>half")
        assert await ended(reader)
        await side.refused("slow")
        await side.until("whole")
        writer.close()


# -- syslog --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("<190>Nov 26 20:00:00 web-1 nginx: 1.2.3.4 - - [x]", "1.2.3.4 - - [x]"),
        ("<190>Nov 26 20:00:00 nginx: 1.2.3.4: a", "1.2.3.4: a"),
        ("<190>Nov  6 20:00:00 fe80::1 nginx[12]: a: b", "a: b"),
        ("<34>2026-11-26T20:00:00.1+01:00 web-1 app[1]: text", "text"),
        ("<34>1 2026-11-26T20:00:00Z web-1 app 1 id - text", "text"),
        ('<34>1 - - - - - [a b="]\\" "][c] \ufefftext', "text"),
        ("<34>1 - - - - - -", ""),
        ("no syslog at all", "no syslog at all"),
    ],
)
async def test_headers(tmp_path: Path, message: str, text: str) -> None:
    async with receiving(tmp_path, "syslog") as side:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        host, port = split_address(side.receiver.udp_address)  # type: ignore[attr-defined]
        udp.sendto(f"{message}\0\n".encode(), (host, port))
        udp.close()
        await side.until(text)
        if text:
            await talk(side, f"{message}\n{message}\n".encode())
            await side.until(text, text, text)


async def test_a_whole_message_is_a_line_and_its_newlines_are_written_out(tmp_path: Path) -> None:
    async with receiving(tmp_path, "syslog", "syslog5424") as side:
        await talk(side, b"8 <1>1 a\nb12 <1>1 - - - -")
        await side.until("<1>1 a#012b", "<1>1 - - - -")


@pytest.mark.parametrize("data", [b"5 <1>1 x6 <1>1", b"12345678901 <", b"9" * 40, b"3 <1>xx"])
async def test_a_length_that_is_none_ends_the_connection(tmp_path: Path, data: bytes) -> None:
    async with receiving(tmp_path, "syslog", "syslog") as side:
        reader, writer = await asyncio.open_connection(*side.at)
        writer.write(data + b"zz")
        assert await ended(reader)
        await side.refused("framing")
        writer.close()


async def test_what_udp_loses_is_counted_and_a_gap(tmp_path: Path) -> None:
    async with receiving(tmp_path, "syslog", spool_bytes_max=100_000) as side:
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        host, port = split_address(side.receiver.udp_address)  # type: ignore[attr-defined]
        side.fill()
        udp.sendto(b"<1>Nov 26 20:00:00 a b: lost", (host, port))
        await side.refused("lost")
        side.free()
        udp.sendto(b"<1>Nov 26 20:00:00 a b: here", (host, port))
        await side.until("here")
        (gap,) = side.read.gaps()
        assert (gap.path, gap.bytes) == ("syslog:127.0.0.1", 5)
        assert side.read.counters.lost_bytes == 5
        udp.close()


async def test_an_address_that_is_in_use_is_said(tmp_path: Path) -> None:
    async with receiving(tmp_path, "syslog") as side:
        at = f"127.0.0.1:{side.at[1]}"
        own = side.receiver._intake  # type: ignore[attr-defined]
        again = Syslog(at, own, transports=("tcp",), whole=False, max_line_bytes=1, bounds=listening.Bounds())
        with pytest.raises(UserError, match=at):
            await again.serve()


async def test_a_sender_that_is_silent_makes_place_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "ORIGINS_MAX", 1)
    async with receiving(tmp_path, "syslog") as side:
        origin = side.receiver._intake.origin  # type: ignore[attr-defined]
        assert [origin("a"), origin("b"), origin("a")] == ["syslog:a", "syslog:other", "syslog:a"]
        monkeypatch.setattr(intake, "SILENT_MS", 0)
        assert origin("b") == "syslog:b"


async def test_more_senders_than_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "ORIGINS_MAX", 0)
    async with receiving(tmp_path, "syslog") as side:
        await syslog_lines(side, ["one"])
        await side.until("one")
        assert side.read.positions()[1].path == "syslog:other"


# -- HTTP ----------------------------------------------------------------------------------------------------


async def test_what_is_refused_over_http(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o600)
    bomb = gzip.compress(b"x" * 3_000_000)
    async with receiving(tmp_path, "http", token_file=str(token), body_bytes_max=2_000_000) as side:
        good = "Bearer 0123456789abcdef"
        assert (await post(side, b"a\n"))[0] == 401
        assert (await post(side, b"a\n", authorization="Bearer 0123456789abcdeX"))[0] == 401
        assert (await post(side, b"a\n", "/other", authorization=good))[0] == 404
        assert (await post(side, b"a" * 2_000_001, authorization=good))[0] == 413
        assert (await post(side, b"a" * 2_000_001, chunked=True, authorization=good))[0] == 413
        assert (await post(side, bomb, content_encoding="gzip", authorization=good))[0] == 413
        assert (await post(side, b"no gzip", content_encoding="gzip", authorization=good))[0] == 400
        assert (await post(side, gzip.compress(b"half")[:-9], content_encoding="gzip", authorization=good))[
            0
        ] == 400
        assert (await post(side, b"a\n", content_encoding="br", authorization=good))[0] == 415
        assert (await post(side, b"", authorization=good)) == (202, {"lines": 0})
        assert (await post(side, gzip.compress(b"a\n") * 2, content_encoding="gzip", authorization=good))[
            0
        ] == 202
        assert side.look() == ["a", "a"]
        assert side.refusals() == {"token": 2, "path": 1, "large": 3, "encoding": 3}
    async with receiving(tmp_path / "b", "http") as side:
        assert (await post(side, b"a\n", origin="http://evil.example"))[0] == 403
        assert (await post(side, b"a\n", idempotency_key="one"))[0] == 202
        assert (await post(side, b"a\n", idempotency_key="one"))[0] == 202
        assert side.look() == ["a"]


async def test_a_body_that_does_not_come_or_is_too_much_beside_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.receiving.http.BODY_SECS", 0.05)
    monkeypatch.setattr("agents.receiving.http.REST_SECS", 0.05)
    monkeypatch.setattr("agents.receiving.http.HELD_BYTES_MAX", 100)
    async with receiving(tmp_path, "http") as side:
        reader, writer = await asyncio.open_connection(*side.at)
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        assert (await post(side, b"x" * 101))[0] == 503
        assert (await post(side, b"x\n"))[0] == 202, "nothing is held any more"
        assert side.look() == ["x"]
        assert side.refusals() == {"slow": 1, "busy": 1}


async def test_a_key_is_of_its_lines_and_a_repeat_is_not_counted(tmp_path: Path) -> None:
    async with receiving(tmp_path, "http") as side:
        for body in (b"of a\n", b"of b\n", b"of a\n"):
            assert (await post(side, body, idempotency_key="1"))[0] == 202
        assert side.look() == ["of a", "of b"]
        (family,) = [one for one in side.metrics.families() if one.name == "elf_lines_received_bytes"]
        assert [count for _, count in family.values()] == [10]


async def test_what_never_fits_is_too_large(tmp_path: Path) -> None:
    async with receiving(tmp_path / "http", "http", spool_bytes_max=100_000) as side:
        assert (await post(side, b"x" * 37_501))[0] == 413
        assert (await post(side, (b"x" * 99 + b"\n") * 370))[0] == 202
    async with receiving(tmp_path / "forward", "forward", spool_bytes_max=100_000) as side:
        assert await forward(side, ["tag", entries(["x" * 99] * 400), {"chunk": "c"}]) == []
        await side.refused("large")
        assert await forward_array(side, ["fine"])
    async with receiving(tmp_path / "syslog", "syslog", spool_bytes_max=20_000) as side:
        await syslog_lines(side, ["x" * 99] * 100)
        await side.refused("lost", 100)


def test_whatever_fits_once_fits_again_when_all_is_read(tmp_path: Path) -> None:
    """Also where much was written at once: a segment of its size would have to be passed first."""
    spool = Spool(tmp_path, bytes_max=80_000, linger_s=10)
    for _ in range(70):
        assert spool.take("a", b"x" * 1_000, hurry=False) is not None
    for size in (1, spool.record_bytes_max - 100, spool.record_bytes_max - 100):
        done = spool.take("a", b"x" * size)
        assert done is not None
        done.result(10)
        spool.covered(spool.durable)
    spool.close()


def test_a_gzip_of_many_parts_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [os.urandom(size) for size in (0, 1, 5_000, 4_096, 20, 20)]
    data = b"".join(map(gzip.compress, parts))
    assert unpacking.gunzipped(data, 10_000) == b"".join(parts)
    with pytest.raises(unpacking.TooLarge):
        unpacking.gunzipped(data, sum(map(len, parts)) - 1)
    monkeypatch.setattr(unpacking, "PARTS_MAX", 5)
    with pytest.raises(unpacking.TooLarge, match="more than 5 parts"):
        unpacking.gunzipped(data, 10_000)


# -- OTLP ----------------------------------------------------------------------------------------------------


async def test_logs_of_opentelemetry(tmp_path: Path) -> None:
    service = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
    tree = {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
                "scopeLogs": [
                    {
                        "scope": {"name": "lib"},
                        "logRecords": [
                            {
                                "timeUnixNano": "1800000000000001000",
                                "severityNumber": 17,
                                "body": {"stringValue": "a\nb"},
                                "traceId": "0af7651916cd43dd8448eb211c80319c",
                                "attributes": [
                                    {"key": "n", "value": {"intValue": "1"}},
                                    {"key": "l", "value": {"arrayValue": {"values": [{"boolValue": True}]}}},
                                ],
                            }
                        ],
                    }
                ],
            }
        ]
    }
    line = (
        '{"@timestamp":"2027-01-15T08:00:00.000001Z","severity":"ERROR","body":"a\\nb",'
        '"attributes":{"n":1,"l":[true]},"resource":{"service.name":"shop"},"scope":"lib",'
        '"trace_id":"0af7651916cd43dd8448eb211c80319c"}'
    )
    from google.protobuf import json_format

    export = json_format.ParseDict(
        tree | {"unknown": 1}, service.ExportLogsServiceRequest(), ignore_unknown_fields=True
    )
    export.resource_logs[0].scope_logs[0].log_records[0].trace_id = bytes.fromhex(
        "0af7651916cd43dd8448eb211c80319c"
    )
    packed = export.SerializeToString()
    async with receiving(
        tmp_path / "a", "otlp", "json", body_bytes_max=100_000, spool_bytes_max=200_000
    ) as side:
        kind = "application/x-protobuf"
        body = gzip.compress(packed)
        assert await post(side, body, "/v1/logs", content_type=kind, content_encoding="gzip") == (200, {})
        assert (await post(side, json.dumps(tree).encode(), "/v1/logs", content_type="application/json"))[
            0
        ] == 200
        assert (await post(side, packed, "/v1/logs", content_type=kind))[0] == 200
        await side.until(line, line)
        assert side.read.spool.repeated == 1
        assert (await post(side, b"\xff", "/v1/logs", content_type=kind))[0] == 400
        for shape in ({"resourceLogs": ["x"]}, {"resourceLogs": 1}, {"resourceLogs": [{"scopeLogs": "x"}]}):
            bad = json.dumps(shape).encode()
            assert (await post(side, bad, "/v1/logs", content_type="application/json"))[0] == 400
        logs = export.resource_logs[0]
        large = service.ExportLogsServiceRequest()
        large.resource_logs.add().CopyFrom(logs)
        large.resource_logs[0].resource.attributes[0].value.string_value = "x" * 10_000
        large.resource_logs[0].scope_logs[0].log_records.extend(
            [logs.scope_logs[0].log_records[0].__class__()] * 10
        )
        assert (await post(side, large.SerializeToString(), "/v1/logs", content_type=kind))[0] == 413
        assert (await post(side, b"[1]", "/v1/logs", content_type="application/json"))[0] == 400
        assert (await post(side, b"[" * 90_000, "/v1/logs", content_type="application/json"))[0] == 400
        assert (await post(side, b"a", "/v1/logs", content_type="text/plain"))[0] == 415
        assert (await post(side, b"a", "/", content_type=kind))[0] == 404
        side.fill()
        packed = packed.replace(b"shop", b"shap")
        assert (await post(side, packed, "/v1/logs", content_type=kind))[0] == 503
    async with receiving(tmp_path / "b", "otlp") as side:
        assert (await post(side, packed, "/v1/logs", content_type=kind))[0] == 200
        await side.until("a#012b")


# -- the journal ---------------------------------------------------------------------------------------------


async def test_an_entry_that_is_too_large_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may write one."""
    entries = [
        json.dumps({"__CURSOR": f"c{number}", "MESSAGE": text})
        for number, text in enumerate(["a", "x" * 300_000, "b", "y" * 5_000, "c"])
    ]
    program = tmp_path / "journalctl"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(entries) + "\nEND\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    async with receiving(tmp_path / "s", "journal", body_bytes_max=4_000) as side:
        await side.until("a", "b", "c")
        await side.refused("large", 2)
        assert side.read.spool.last_key == b"c4"


@pytest.mark.skipif(shutil.which("journalctl") is None, reason="this machine has no journalctl")
async def test_the_journal_goes_on_behind_its_cursor(tmp_path: Path) -> None:
    """``tests/support/five.journal.xz`` has five entries; systemd-journal-remote has made it."""
    place = tmp_path / "five.journal"
    packed = Path(__file__).parents[1] / "support" / "five.journal.xz"
    place.write_bytes(lzma.decompress(packed.read_bytes()))
    texts = [f"line {number}" for number in range(5)]
    async with receiving(tmp_path / "a", "journal", include=(str(place),)) as side:
        await side.until(*texts)
        side.read.kept(side.read.positions())
    async with receiving(tmp_path / "a", "journal", include=(str(place),)) as side:
        await asyncio.sleep(0.3)
        assert side.look() == texts, "those of the spool, and none twice"
    async with receiving(
        tmp_path / "b", "journal", "json", include=(str(tmp_path),), matches=("PRIORITY=6",)
    ) as side:
        async with asyncio.timeout(10):
            while len(side.look()) < 5:
                await asyncio.sleep(0.01)
        first = json.loads(side.got[0])
        assert (first["@timestamp"], first["_SYSTEMD_UNIT"]) == (
            "2026-11-26T13:33:20.000000Z",
            "nginx.service",
        )
