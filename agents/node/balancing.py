"""What agents do: each measures it of itself, and who decides hears it of all.

Each agent measures what the job groups that it leads take of it, and says so with its ``Follow``: every voter
of the catalog log hears it every ten seconds, since it may lead them next. Loads are thirty seconds old at
most, so a new leader of the voters knows as much after its first ten seconds. A job's load goes with the job:
it is counted where the log says that the job's group is, whoever said it last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import LOADS_MAX, AgentLoad, GroupLoad
from elf.planning import balance as flux

NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
NO_PROMISES: Final[Mapping[str, tuple[int, bool]]] = MappingProxyType({})
LOOK_MS: Final = 10_000
"""Over so long an agent measures what it does."""
STALE_MS: Final = 30_000
"""What an agent has said is believed for so long."""
AGENTS_MAX: Final = 16_384
"""Agents whose loads are kept."""


class OwnLoad:
    """What this agent does, from what its parts have counted: CPU time in µs since their beginnings."""

    def __init__(self) -> None:
        self.said: AgentLoad | None = None
        """None: not measured yet."""
        self._groups: dict[str, int] = {}
        self._windows: dict[str, int] = {}
        self._rest = 0
        self._process: int | None = None
        self._at_ms: int | None = None

    def due(self, now_ms: int) -> bool:
        return self._at_ms is None or now_ms - self._at_ms >= LOOK_MS

    def look(
        self,
        groups: Mapping[str, int],
        rest: int,
        now_ms: int,
        windows: Mapping[str, int] = NOTHING,
        always: Collection[str] = (),
        promised: Mapping[str, tuple[int, bool]] = NO_PROMISES,
        process: int | None = None,
    ) -> None:
        """A group that has come since the last look is not said yet: it would seem idle. ``windows``: what of
        it is for windows; ``always``: groups that are said also where they are idle; ``promised``: what the
        windows of those have come to that promise something; ``process``: CPU time of the whole process."""
        before_ms = self._at_ms
        if before_ms is not None and now_ms > before_ms:

            def load(us: int, before_us: int) -> int:
                return max(0, us - before_us) * 1_000 // (now_ms - before_ms)

            loads = {uid: load(us, self._groups[uid]) for uid, us in groups.items() if uid in self._groups}
            made = {uid: load(us, self._windows.get(uid, us)) for uid, us in windows.items()}
            named = [uid for uid in loads if loads[uid] or uid in always or uid in promised]
            said = sorted(named, key=lambda uid: (-loads[uid], uid))[:LOADS_MAX]
            others = sum(loads[uid] for uid in loads.keys() - set(said))
            told = tuple(
                GroupLoad(uid, loads[uid], made.get(uid, 0), *promised.get(uid, (None, True))) for uid in said
            )
            known = process is not None and self._process is not None
            whole = load(process or 0, self._process or 0) if known else None
            self.said = AgentLoad(load(rest, self._rest) + others, told, whole)
        self._groups, self._rest, self._at_ms = dict(groups), rest, now_ms
        self._windows, self._process = dict(windows), process


class Loads:
    """What a voter has heard."""

    def __init__(self, log: CatalogLog) -> None:
        self._log = log
        self._heard: dict[str, tuple[AgentLoad, int]] = {}
        """By address: what it said, and when that was (ms)."""
        self._groups: dict[str, tuple[GroupLoad, int]] = {}
        """By job group: what was said last by who led it then."""

    def heard(self, address: str, load: AgentLoad | None, now_ms: int) -> None:
        """An agent says what it does. Of job groups only those are its to speak of that the log has there."""
        if load is None or (address not in self._heard and len(self._heard) >= AGENTS_MAX):
            return
        self._heard[address] = load, now_ms
        self._groups |= {
            one.uid: (one, now_ms) for one in load.groups if self._log.leader(one.uid) == address
        }

    def said(self, now_ms: int) -> dict[str, AgentLoad]:
        """What agents have said of late, by address, of themselves; with the job groups that the log has
        there, as whoever led them has said it last."""
        self._forget(now_ms)
        groups: dict[str, list[GroupLoad]] = {address: [] for address in self._heard}
        for uid, (one, _) in self._groups.items():
            if (where := self._log.leader(uid)) in groups:
                groups[where].append(one)
        return {at: AgentLoad(load.rest, tuple(groups[at])) for at, (load, _) in self._heard.items()}

    def loads(self, now_ms: int) -> dict[str, flux.Load]:
        """By address, in millionths of a core: of the agents that have said it of late. A group that has
        moved takes there what it took here. What groups take beside what is counted is learned of all
        agents."""
        now = self.said(now_ms)
        then = {
            at: flux.Load({one.uid: float(one.load) for one in load.groups}, float(load.rest))
            for at, (load, _) in self._heard.items()
        }
        whole = {at: float(load.whole) for at, (load, _) in self._heard.items() if load.whole is not None}
        factor = flux.learned({at: (then[at], taken) for at, taken in whole.items()})
        return {
            at: flux.Load(
                {one.uid: factor * one.load for one in load.groups},
                flux.beside(then[at], whole.get(at), factor),
            )
            for at, load in now.items()
        }

    def _forget(self, now_ms: int) -> None:
        self._heard = {at: heard for at, heard in self._heard.items() if now_ms - heard[1] <= STALE_MS}
        self._groups = {
            uid: heard
            for uid, heard in self._groups.items()
            if now_ms - heard[1] <= STALE_MS and self._log.leader(uid) is not None
        }
