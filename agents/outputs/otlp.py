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

from agents.outputs.parcels import Parcel
from agents.outputs.series import Shape
from agents.outputs.webhook import Poster
from elf import __version__
from elf.errors import UserError
from elf.job.output import OutputSpec

_json: Final = msgspec.json.Encoder().encode


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
        for parcel in parcels:
            if parcel.window.table.num_rows:
                said = self._poster.post(_json(self._request(parcel)), self._headers)
                _check(said)

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


def _check(said: bytes) -> None:
    """A server may take a part, and say so. Raises ``UserError``."""
    try:
        part = msgspec.json.decode(said or b"{}", type=dict[str, Any]).get("partialSuccess") or {}
    except msgspec.MsgspecError:
        return
    if int(part.get("rejectedDataPoints") or 0):
        raise UserError(
            f"the server rejects {part['rejectedDataPoints']} points: {part.get('errorMessage', '')}"
        )
