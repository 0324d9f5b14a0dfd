"""Regions on one machine where nobody may make network namespaces (``lab.wan.spaces``): agents beside each
other, with a proxy before each, which holds links to their rates and delays (``lab.wan.proxy``).

    agent ──→ 127.9.r.1, the proxy ──→ 127.8.r.1, an agent of region r

From which region somebody connects is seen by whose process the connection is. Who is no agent is near."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import permutations, product
from typing import Final

import psutil

from lab.wan.proxy import Address, Link, Proxy

MBIT: Final = 125_000
"""Bytes a second."""


class Loopback:
    """Regions by name. Use it in a ``with``, as ``Spaces``. ``delay_s``: of each link, one way."""

    def __init__(self, names: Sequence[str], delay_s: float = 0.0) -> None:
        self._names = list(names)
        self._links = {pair: Link(delay_s) for pair in permutations(self._names, 2)}

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left behind."""

    def address(self, name: str) -> str:
        """Where processes of a region are reached."""
        return f"127.9.{1 + self._names.index(name)}.1"

    def listens(self, name: str) -> str:
        """Where they listen."""
        return f"127.8.{1 + self._names.index(name)}.1"

    def inside(self, _name: str, *command: str) -> list[str]:
        """The command that runs another one in a region."""
        return list(command)

    def shape(self, origin: str, target: str, mbit: float) -> None:
        """What the link from one region to another carries from now on."""
        self._links[origin, target].rate = mbit * MBIT

    def sent(self, origin: str, target: str) -> int:
        """Bytes that have gone from one region to another, without headers."""
        return self._links[origin, target].sent

    async def carry(
        self, ports: Sequence[int], regions: Callable[[], Mapping[int, str]], opened: AsyncExitStack
    ) -> None:
        """Join the regions for what goes to these ports, while ``opened`` is. ``regions``: of processes, by
        their ids."""
        proxy = await opened.enter_async_context(Proxy())
        for name, port in product(self._names, ports):

            def ways(peer: Address, name: str = name) -> tuple[Link, Link]:
                here = _region(peer, regions())
                near = Link(), Link()
                return near if here in (name, "") else (self._links[here, name], self._links[name, here])

            await proxy.listen((self.address(name), port), (self.listens(name), port), ways)


def _region(peer: Address, regions: Mapping[int, str]) -> str:
    """Of the process that has this end of a connection; empty: it is of none."""
    for pid, region in regions.items():
        with suppress(psutil.Error):
            if any(one.laddr == peer for one in psutil.Process(pid).net_connections("tcp4")):
                return region
    return ""
