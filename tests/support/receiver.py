"""A real HTTP server that takes what webhooks send."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """It serves. ``answers``: the next statuses; 204 when there is none."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    says: bytes = b"busy\n"
    """The body of answers other than 204."""
    drips: bool = False
    """Its answers never end: a byte a moment."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    open: list[socket.socket] = field(default_factory=list)
    """Of its connections."""

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    def drop(self) -> None:
        """Close what is open."""
        for one in self.open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.open.clear()


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            server.open.append(self.connection)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            server.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = server.answers.pop(0) if server.answers else 204
            self.send_response(status)
            while server.drips:
                self.wfile.write(b"y")
                time.sleep(0.01)
            self.send_header("content-length", "0" if status == 204 else str(len(server.says)))
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(b"" if status == 204 else server.says)

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        server.url = f"http://127.0.0.1:{http.server_port}/in"
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
