"""Whoever asks the page's API, with a token."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SOON = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Asking:
    """``token``: empty: none is shown."""

    port: int
    token: str = ""

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON)
        try:
            connection.request(method, path, body, self._headers(headers))
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", f"/api/v1/{path}")

    def post(self, path: str, told: object) -> Answer:
        body = json.dumps(told).encode()
        return self.ask("POST", f"/api/v1/{path}", body, {"content-type": "application/json"})

    def sql(self, text: str) -> Any:
        """What a statement comes to, which is to be done."""
        answer = self.post("sql", {"sql": text})
        assert answer.status == 200, answer.body
        return answer.told

    def refused(self, text: str) -> str:
        """Why a statement is not done."""
        answer = self.post("sql", {"sql": text})
        assert answer.status == 400, answer.body
        return str(answer.told["error"])

    def watch(self, **statements: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Events, until they end or nobody reads them."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON)
        try:
            body = json.dumps({"statements": statements}).encode()
            connection.request(
                "POST", "/api/v1/watch", body, self._headers({"content-type": "application/json"})
            )
            response = connection.getresponse()
            assert response.status == 200, response.read()
            name = ""
            while line := response.readline():
                head, _, value = line.decode().strip().partition(": ")
                if head == "event":
                    name = value
                elif head == "data":
                    yield name, json.loads(value)
        finally:
            connection.close()

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**({"authorization": f"Bearer {self.token}"} if self.token else {}), **headers}
