"""``elf ui``: the page, for one person, who asks through the keys of the client.

It listens on loopback, and lets in who has the link that it prints: the token in it is made anew each time,
and stands behind ``#``, which a browser keeps to itself. A browser on another machine comes through ``ssh
-L``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import importlib.util
import json
import secrets
import sys
from typing import Final

from agents.connections import Bounds, Door, names_of
from agents.serving import Served
from elf.cli.ask import ask
from elf.cli.serving import asked_to_end, own_host, tell_whose
from elf.client import Client, connect
from elf.client.lasting import Lasting
from elf.errors import UserError
from elf.page.app import POLICY, Page
from elf.page.events import EventStreams
from elf.page.visitors import Compare, Visitor

ANSWERS: Final = 200
"""A second: there is one person, with as many tabs as they like."""
COMPARE_SECS: Final = 600.0


def serve(address: str, cluster: str, listen: str, creator: str | None) -> int:
    """Until Ctrl-C."""
    own_host(listen, "the page", 7073, ", or at an agent with http.page: true")
    with contextlib.suppress(KeyboardInterrupt):
        ask(_serve(address, cluster, listen, creator))
    return 0


async def _serve(address: str, cluster: str, listen: str, creator: str | None) -> None:
    async with connect(address, cluster=cluster, creator=creator) as client:
        host = ClientHost(client, cluster)
        events = EventStreams()
        page = Page(host, events)
        bounds = Bounds(answers=ANSWERS, has_body=page.has_body)
        door = Door(page, names_of(listen), bounds, lambda reason: None)
        server = Served(listen, door, "--listen", POLICY)
        await server.start()
        await tell_whose(client)
        print(f"http://{server.address}/#key={host.token}", flush=True)
        try:
            await asked_to_end()
        finally:
            events.stop()
            await server.stop()
            await events.settle()


class ClientHost:
    """Lets in who has the ``token``; all of them ask through one client."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._lasting = Lasting(client)
        self._cluster = cluster
        self._comparing = asyncio.Lock()
        self.token = secrets.token_urlsafe(32)

    @property
    def compare(self) -> Compare | None:
        """See ``elf.page.visitors``."""
        return self._compare if importlib.util.find_spec("pyspark") is not None else None

    async def visitor(self, token: str) -> Visitor:
        """See ``elf.page.visitors``."""
        if why := self.ended(token):
            raise UserError(why)
        await self._lasting.reached()
        return Visitor(self._client.creator, self._client.roles, True, self._client)

    def ended(self, token: str) -> str:
        """See ``elf.page.visitors``."""
        if hmac.compare_digest(token.encode(), self.token.encode()):
            return ""
        return "open the link that elf ui has printed: this token is another one's"

    async def _compare(self, job: str) -> dict[str, object]:
        """In a process of its own, since Java takes its time and memory."""
        if not job.isidentifier():
            raise UserError(f"{job!r} is no name of a job")
        if self._comparing.locked():
            raise UserError("a comparison is under way; wait for its end")
        async with self._comparing:
            return await self._compared(job)

    async def _compared(self, job: str) -> dict[str, object]:
        command = ("-m", "elf.cli.main", "compare", job, "--json", "--connect", self._client.address)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            "--cluster",
            self._cluster,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(COMPARE_SECS):
                out, err = await process.communicate()
        except TimeoutError:
            raise UserError(f"Spark has not answered within {COMPARE_SECS:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
        try:
            told: dict[str, object] = json.loads(out)
        except ValueError:
            text = err.decode(errors="replace").strip().splitlines()
            raise UserError(text[-1] if text else "the comparison said nothing") from None
        return told
