"""A window as metrics of OpenTelemetry: gauges by OTLP over HTTP, in JSON.

``otlp+http://host:4318/v1/metrics`` (or ``otlp+https``). Each number of a row is a data point of the gauge
``<output>.<column>``, with the end of the window as its time, and its labels as attributes. What comes again
has the same time and attributes, so a store of series replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from agents.outputs.parcels import Parcel, Refused
from agents.outputs.series import Shape
from agents.outputs.webhook import Poster
from elf import __version__
from elf.errors import UserError
from elf.job.output import OutputSpec

_json: Final = msgspec.json.Encoder().encode


class _Part(msgspec.Struct):
    points: int = msgspec.field(default=0, name="rejectedDataPoints")
    """As a text, as often in JSON of protocol buffers, or as a number."""
    why: str = msgspec.field(default="", name="errorMessage")


class _Answer(msgspec.Struct):
    partial: _Part | None = msgspec.field(default=None, name="partialSuccess")


class Otlp:
    """Of one output. With a secret each request has it as ``Authorization: Bearer``."""

    def __init__(self, output: OutputSpec, secret: str) -> None:
        if not secret.isascii():
            raise UserError("a bearer token is ASCII, and the secret is not")
        self._output = output
        self._shape = Shape(output)
        self._headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._poster = Poster(urlsplit(output.target.removeprefix("otlp+")))

    def put(self, parcels: Sequence[Parcel]) -> None:
        rejected = ""
        for parcel in parcels:
            if parcel.window.table.num_rows:
                said = self._poster.post(_json(self._request(parcel)), self._headers)
                rejected = _rejected(said) or rejected
        if rejected:
            raise Refused(rejected)

    def close(self) -> None:
        self._poster.close()

    def _request(self, parcel: Parcel) -> dict[str, Any]:
        window = parcel.window
        names = self._shape.labels(window.table)
        nanos = str(int(window.end.timestamp() * 1_000_000) * 1_000) if window.end is not None else "0"
        points: dict[str, list[dict[str, Any]]] = {}
        for row in self._shape.rows(window.table):
            attributes = [_attribute(name, text) for name, text in zip(names, row.labels, strict=True)]
            for column, value in row.values.items():
                point = {"timeUnixNano": nanos, "asDouble": value, "attributes": attributes}
                points.setdefault(column, []).append(point)
        metrics = [
            {"name": f"{self._output.name}.{column}", "gauge": {"dataPoints": some}}
            for column, some in points.items()
        ]
        scope = {"name": "elf", "version": __version__, "attributes": [_attribute("elf.job", window.name)]}
        resource = {"attributes": [_attribute("service.name", "elf")]}
        return {
            "resourceMetrics": [
                {"resource": resource, "scopeMetrics": [{"scope": scope, "metrics": metrics}]}
            ]
        }


def _attribute(name: str, text: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": text}}


def _rejected(said: bytes) -> str:
    """What of a request a server has not taken, and why; it must not be sent again."""
    try:
        part = msgspec.json.decode(said or b"{}", type=_Answer, strict=False).partial
    except msgspec.MsgspecError:
        return ""  # it has taken it, and says so in words of its own
    return f"the server rejects {part.points} points: {part.why}" if part is not None and part.points else ""
