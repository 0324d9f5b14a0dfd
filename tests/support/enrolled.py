"""A fleet of real agents with keys: an authority, its owner's keys, and persons."""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from elf.cli import authority, enrol
from elf.client import connect
from elf.client.enrolment import keys_of
from elf.errors import ElfError
from elf.security import folder as files
from elf.security.enrolling import shown_token
from elf.security.keys import KeyPair
from elf.security.registrar import Registrar
from elf.security.roster import Roster
from tests.support.fleet import Agent, Fleet

CLUSTER = "shop"


class Enrolled:
    """Three agents; ``own``: the keys of who has the authority."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.folder = folder
        self.own = folder / "own"
        enrol.make_authority(self.own, CLUSTER)
        self.fleet = Fleet(folder, count)
        names = tuple(f"{agent.name}={agent.folder / 'data'}" for agent in self.fleet.agents)
        self.enrol(*names)
        for agent in self.fleet.agents:
            agent.cluster = CLUSTER
            agent.functions = {"allow": "signed"}

    def start(self) -> None:
        self.fleet.start()
        self.fleet.begin_writing()
        for agent in self.fleet.agents:
            self.ready(agent)

    def ready(self, agent: Agent) -> None:
        until(lambda: answers(f"http://127.0.0.1:{agent.http_port}/ready"), 40)

    @property
    def address(self) -> str:
        return self.fleet.agents[0].address

    @property
    def addresses(self) -> list[str]:
        return [agent.address for agent in self.fleet.agents]

    def enrol(
        self, *names: str, persons: tuple[str, ...] = (), roles: str = "read", connect: str = ""
    ) -> None:
        wanted = enrol.Wanted(names, persons, roles, "30d", None, None)
        assert enrol.enrol_all(self.own, wanted, connect or None) == 0

    def person(self, name: str, roles: str = "read") -> Path:
        """The folder of a new person's keys, whom the fleet knows."""
        at = self.folder / name
        self.enrol(persons=(f"{name}={at}",), roles=roles, connect=self.address)
        return at

    def registrar(self) -> Registrar:
        return Registrar(self.own / authority.AUTHORITY)

    def admitted(self, keys: Path | None = None, address: str = "") -> bool:
        return admitted(address or self.address, keys or self.own)

    def sql(self, text: str, keys: Path | None = None, address: str = "") -> str:
        """What an agent says to a statement."""

        async def say() -> str:
            async with connect(address or self.address, keys=keys or self.own) as client:
                return (await client.sql(text)).text

        return asyncio.run(say())

    def names(self) -> list[str]:
        """Whose keys hold, as the fleet says."""
        identity = files.load(self.own).identity
        known = asyncio.run(keys_of(self.address, self.own, identity.cluster))
        return [one.name for one in Roster(CLUSTER, identity.authority, known.signed)]


def admitted(address: str, keys: Path) -> bool:
    """Whether an agent lets somebody in."""

    async def ask() -> bool:
        try:
            async with connect(address, keys=keys, timeout=3) as client:
                await client.status()
        except ElfError as error:
            if "does not admit" not in str(error):
                raise
            return False
        return True

    return asyncio.run(ask())


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return int(reply.status) == 200
    except (OSError, urllib.error.URLError):
        return False


def until(seen: Callable[[], bool], secs: float) -> float:
    """Wait until something is seen; how long that took."""
    began = time.monotonic()
    while not seen():
        assert time.monotonic() - began < secs, "not in time"
        time.sleep(0.1)
    return time.monotonic() - began


def token_of(fleet: Enrolled, name: str, uses: int = 1, seconds: int = 600) -> str:
    """A join token that the fleet knows."""
    registrar, pair = fleet.registrar(), KeyPair.new()
    registrar.certify("token", name, pair.public, int(time.time()), seconds, uses=uses)
    authority.tell_fleet(fleet.own, registrar, fleet.address, must=True)
    return shown_token(fleet.registrar().token(pair))


def state_of(fleet: Enrolled, name: str) -> list[str]:
    """What the fleet says of an agent, a word for each stream."""

    async def ask() -> list[str]:
        async with connect(fleet.address, keys=fleet.own) as client:
            table = (await client.sql("SHOW MEMBERS")).table
        assert table is not None
        return [row["state"] for row in table.to_pylist() if row["agent"] == name]

    return asyncio.run(ask())
