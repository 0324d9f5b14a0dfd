"""Regions on one machine: a network namespace each, and between any two of them a link whose rate the kernel
holds (``tc tbf``), each way by itself. For delays a kernel has ``netem``, and not every one does: where links
are to have one, a proxy in each region (``lab.wan.proxy``) has the addresses of all.

    region a ── veth, tbf ──────── tbf, veth ── region b         10.8.a.1 ↔ 10.8.b.1
        └────── veth, no bound ─────── whoever looks             10.9.a.2 ↔ 10.9.a.1
    agent in a ──→ 10.8.b.1, the proxy in a ──→ veth, tbf ──→ 10.6.b.1, agent in b

It takes a user namespace in which we are root: run this in a process of ``unshare`` (``UNSHARE``). What is in
it ends with that process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import combinations, product
from typing import Final

from elf.errors import ElfError, UserError

UNSHARE: Final = ("unshare", "--user", "--map-root-user", "--net", "--fork", "--kill-child")
"""Before a command that makes regions."""
HOLDER: Final = ("unshare", "--net", "cat")
"""Is a region for as long as whoever has begun it: then its standard input ends."""
BURST: Final = "2kb"
WAITS: Final = "30s"
"""So long a packet may wait for its turn at a link: nothing is lost there."""


def check() -> None:
    """Raise ``UserError`` where this machine cannot do it."""
    missing = [name for name in ("unshare", "nsenter", "ip", "tc") if shutil.which(name) is None]
    if missing:
        raise UserError(f"{', '.join(missing)} is not here: install util-linux and iproute2 (or --proxy)")
    tried = subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    if tried.returncode:
        raise UserError(
            f"this machine lets nobody make network namespaces: {tried.stderr.strip()} (--proxy needs none)"
        )


class Spaces:
    """Regions by name. Use it in a ``with``. ``delay_s``: of each link, one way."""

    def __init__(self, names: Sequence[str], delay_s: float = 0.0) -> None:
        self._names = list(names)
        self._delay_s = delay_s
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._proxies: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Spaces:
        _run("ip", "link", "set", "lo", "up")
        for name in self._names:
            self._holders[name] = subprocess.Popen(HOLDER, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for name in self._names:
            self._open(name)
        for a, b in combinations(self._names, 2):
            self._join(a, b)
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self._proxies, *self._holders.values()):
            process.kill()
            process.wait()

    def address(self, name: str) -> str:
        """Where processes of a region are reached."""
        return f"10.8.{self._at(name)}.1"

    def listens(self, name: str) -> str:
        """Where they listen: behind the proxy, if there is one."""
        return f"10.6.{self._at(name)}.1" if self._delay_s else self.address(name)

    def inside(self, name: str, *command: str) -> list[str]:
        """The command that runs another one in a region."""
        return ["nsenter", "--target", str(self._holders[name].pid), "--net", *command]

    def shape(self, origin: str, target: str, mbit: float) -> None:
        """What the link from one region to another carries from now on."""
        rate = ["rate", f"{mbit * 1_000:.0f}kbit", "burst", BURST, "latency", WAITS]
        self._in(origin, "tc", "qdisc", "replace", "dev", f"to-{target}", "root", "tbf", *rate)

    def sent(self, origin: str, target: str) -> int:
        """Bytes that have gone from one region to another, with all headers."""
        told = json.loads(self._in(origin, "ip", "-s", "-j", "link", "show", f"to-{target}"))
        return int(told[0]["stats64"]["tx"]["bytes"])

    async def carry(
        self, ports: Sequence[int], _regions: Callable[[], Mapping[int, str]], _opened: AsyncExitStack
    ) -> None:
        """Join the regions for what goes to these ports. To be said before anybody connects."""
        for here in self._names if self._delay_s else ():
            for there in self._names:
                if there != here:
                    self._in(here, "ip", "addr", "add", f"{self.address(there)}/32", "dev", "lo")
            ways = [
                (self.address(there), self.listens(there), port, 0 if there == here else self._delay_s)
                for there, port in product(self._names, ports)
            ]
            command = self.inside(here, sys.executable, "-P", "-m", "lab.wan.proxy", json.dumps(ways))
            proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._proxies.append(proxy)
            assert proxy.stdout is not None
            if not proxy.stdout.readline():
                raise ElfError(f"the proxy of {here} does not come up")

    def _open(self, name: str) -> None:
        """Wait until it is there, and make its way to whoever looks."""
        holder, at = self._holders[name], self._at(name)
        ours = subprocess.run(["readlink", "/proc/self/ns/net"], capture_output=True, check=True).stdout
        while True:
            link = ["readlink", f"/proc/{holder.pid}/ns/net"]
            theirs = subprocess.run(link, capture_output=True, check=True).stdout
            if theirs != ours:
                break
        _run(
            "ip", "link", "add", f"at-{name}", "type", "veth", "peer", "name", "out", "netns", str(holder.pid)
        )
        _run("ip", "addr", "add", f"10.9.{at}.1/24", "dev", f"at-{name}")
        _run("ip", "link", "set", f"at-{name}", "up")
        self._in(name, "ip", "link", "set", "lo", "up")
        for address in {self.address(name), self.listens(name)}:
            self._in(name, "ip", "addr", "add", f"{address}/32", "dev", "lo")
        self._in(name, "ip", "addr", "add", f"10.9.{at}.2/24", "dev", "out")
        self._in(name, "ip", "link", "set", "out", "up")
        _run("ip", "route", "add", f"{self.address(name)}/32", "via", f"10.9.{at}.2")

    def _join(self, a: str, b: str) -> None:
        """A link between two."""
        ends, net = ((a, b, 1), (b, a, 2)), f"10.7.{16 * self._at(a) + self._at(b)}"
        first = ["ip", "link", "add", f"to-{b}", "type", "veth", "peer", "name", f"to-{a}"]
        self._in(a, *first, "netns", str(self._holders[b].pid))
        for here, there, number in ends:
            self._in(here, "ip", "addr", "add", f"{net}.{number}/24", "dev", f"to-{there}")
            self._in(here, "ip", "link", "set", f"to-{there}", "up")
        for here, there, number in ends:
            way = ["via", f"{net}.{3 - number}", "src", self.listens(here)]
            self._in(here, "ip", "route", "add", f"{self.listens(there)}/32", *way)

    def _at(self, name: str) -> int:
        return 1 + self._names.index(name)

    def _in(self, name: str, *command: str) -> str:
        return _run(*self.inside(name, *command))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
