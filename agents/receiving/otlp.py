"""Logs of OpenTelemetry, over HTTP (OTLP/HTTP: ``POST /v1/logs``), as protobuf or as JSON, plain or with
gzip.

A record is a line of JSON: its time (``@timestamp``), ``severity``, ``body``, ``attributes``, the
``resource`` and the ``scope`` that it is of, and the ids of its trace and span; or its body alone. 200 says
that all are durable. Records have no names, but times of nanoseconds: the same bytes again, of records with
times, are the same records.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agents.receiving.http import UNPACKED_AT_ONCE, Refused, no_room
from agents.receiving.intake import Intake
from agents.receiving.records import block, check_count, rendered
from agents.receiving.unpacking import TooLarge
from elf.errors import UserError

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

PATH: Final = "/v1/logs"
PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
DEPTH_MAX: Final = 32
_NO_EXPORT: Final = (AttributeError, TypeError, RecursionError)
"""What JSON of another shape comes to."""


def check() -> None:
    """Raises ``UserError`` where it cannot be read."""
    try:
        import opentelemetry.proto.collector.logs.v1.logs_service_pb2  # noqa: F401
    except ImportError:
        raise UserError(
            "streams of type otlp need the package opentelemetry-proto: pip install 'elf-stream[otlp]'"
        ) from None


class OtlpLogs:
    """Takes the body of a request as an export of logs."""

    def __init__(self, intake: Intake, *, whole: bool, body_bytes_max: int) -> None:
        check()
        self._lines_max = intake.lines_max(body_bytes_max)
        self._reading = asyncio.Semaphore(UNPACKED_AT_ONCE)
        self._intake = intake
        self._whole = whole

    async def take(self, request: Request, body: bytes, address: str) -> Response:
        """See ``agents.receiving.http.Take``."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (PROTOBUF, JSON):
            raise Refused(415, "encoding", f"logs come as {PROTOBUF} or {JSON}")
        async with self._reading:
            lines, key = await asyncio.to_thread(self._read, body, is_json=kind == JSON)
        if lines and not await self._intake.deliver(address, lines, key):
            return no_room()
        return Response(b"" if kind == PROTOBUF else b"{}", 200, media_type=kind)

    def _read(self, body: bytes, *, is_json: bool) -> tuple[bytes, bytes]:
        """The lines, and their key. Raises ``Refused`` and ``TooLarge``."""
        times = set[bool]()

        def lines() -> Iterator[bytes]:
            for record, ns in records(body, is_json=is_json):
                times.add(ns > 0)
                yield rendered(record, ns, {}, whole=self._whole)

        found = block(lines(), self._lines_max)
        return found, b"" if False in times else body


def records(body: bytes, *, is_json: bool) -> Iterator[tuple[dict[object, object], int]]:
    """The records of an export, each with its time in ns (0: it has none). Raises ``Refused`` and
    ``TooLarge``."""
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    try:
        if is_json:
            import json

            found = json_format.ParseDict(
                _ids(json.loads(body)), ExportLogsServiceRequest(), ignore_unknown_fields=True
            )
        else:
            found = ExportLogsServiceRequest.FromString(body)
    except TooLarge:
        raise
    except (DecodeError, json_format.ParseError, ValueError, *_NO_EXPORT) as error:
        raise Refused(400, "malformed", f"the body is no export of logs: {str(error)[:200]}") from None
    for one in found.resource_logs:
        resource = _pairs(one.resource.attributes)
        for scope in one.scope_logs:
            for record in scope.log_records:
                yield _record(record, resource, scope.scope.name)


def _ids(tree: Any) -> Any:
    """OTLP has ids as hexadecimal digits in JSON, and protobuf as base64."""
    count = 0
    for resource in tree.get("resourceLogs", ()) if isinstance(tree, dict) else ():
        for scope in resource.get("scopeLogs", ()):
            for record in scope.get("logRecords", ()):
                check_count(count := count + 1)
                for name in ("traceId", "spanId"):
                    if isinstance(record.get(name), str):
                        try:
                            record[name] = base64.b64encode(bytes.fromhex(record[name])).decode()
                        except (ValueError, binascii.Error):
                            raise ValueError(f"{name} is not hexadecimal") from None
    return tree


def _record(
    record: LogRecord, resource: Mapping[str, object], scope: str
) -> tuple[dict[object, object], int]:
    ns = record.time_unix_nano or record.observed_time_unix_nano
    found = {
        "severity": record.severity_text or _severity(record.severity_number),
        "body": _value(record.body),
        "attributes": _pairs(record.attributes),
        "resource": resource,
        "scope": scope,
        "trace_id": record.trace_id.hex(),
        "span_id": record.span_id.hex(),
        "event": getattr(record, "event_name", ""),
    }
    return {name: value for name, value in found.items() if value not in ("", {}, None)}, ns


def _severity(number: int) -> str:
    """The name of a number: four steps each."""
    names = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
    return names[(number - 1) // 4] if 1 <= number <= 24 else ""


def _pairs(pairs: Iterable[KeyValue], depth: int = 0) -> dict[str, object]:
    return {pair.key: _value(pair.value, depth) for pair in pairs}


def _value(value: AnyValue, depth: int = 0) -> object:
    if depth > DEPTH_MAX:
        raise Refused(400, "malformed", f"a value is nested more than {DEPTH_MAX} deep")
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(one, depth + 1) for one in value.array_value.values]
    if kind == "kvlist_value":
        return _pairs(value.kvlist_value.values, depth + 1)
    found: object = getattr(value, kind)
    return found
