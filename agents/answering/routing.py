"""Routes that are planned by one agent for all, and gone by (protocol 4.12): ``cluster.routes``.

The leader of the catalog log's voters plans once a minute what EXPLAIN ROUTES tells
(``agents.answering.routes``), and decides where that is worth it (``elf.planning.routes.turning``). A
decision is an entry of the log, ``RouteDecided``, for each flow that turns; heads go by the last one. At most
so many are made in an hour, and a flow that has turned stays for some minutes, so that each change is
measured before the next. It also has agents probe links of which nobody has said what they carry
(``elf.job.probes``), those that are in use too: the most that was seen says how much was sent.

States: when it planned last. What was decided is in the log, so the next leader goes on from there. Where it
does not ``act`` what was decided is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from agents.answering.asks import Procedure, Say
from agents.answering.routes import SURE, Found, Pair, Routes, Turn
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import DecideRoute
from elf.job.probes import ProbeLink
from elf.planning.pacing import Change, Pace, paced
from elf.wire.clients import Reply

Mode = Literal["off", "propose", "act"]
PROBES_MAX: Final = 6
"""So many links are probed at a time, with ``PROBE_BYTES_MAX`` each at most."""
PACE: Final = Pace(period_ms=60_000, follow_ms=60_000, rest_ms=300_000, most=120)


class Routing:
    """Of one agent. ``mode``: ``cluster.routes`` as it has it."""

    def __init__(self, log: CatalogLog, routes: Routes, mode: Mode, pace: Pace = PACE) -> None:
        self.mode, self.pace = mode, pace
        self._log = log
        self._routes = routes
        self._next_ms = 0
        self._asked_ms: dict[Pair, int] = {}
        """When a link was to be probed last."""

    def due(self, now_ms: int) -> bool:
        """Whether it is time to plan. Asked of the leader of the voters only; the first plan is made when
        links and rows have been measured for a while."""
        if not self._next_ms:
            self._next_ms = now_ms + self.pace.period_ms
        if now_ms < self._next_ms or not self._log.spans_regions:
            return False
        self._next_ms = now_ms + self.pace.period_ms
        return self.mode != "off" or bool(self._log.routings.acting())

    def decided(self, now_ms: int) -> Procedure:
        """Plan, and propose to the log what flows turn to."""
        words: Sequence[DecideRoute] = () if self.mode == "act" else self._back(now_ms)
        if self.mode != "off" and not words:
            found = yield from self._routes.found()
            words = self._words(found.turned.turns, "; ".join(found.turned.why), now_ms)
            if probes := self._probes(found, now_ms):
                yield [Say(probes)]
        if words:
            yield [Say(tuple(("", word) for word in words))]
        return Reply(request=0)

    def _words(self, turns: Sequence[Turn], why: str, now_ms: int) -> list[DecideRoute]:
        changes = (Change(one.uid, one.uid, one.at_ms) for one in self._log.routings)
        turn = paced(self.pace, changes, (), now_ms)
        return [
            DecideRoute(
                uid=uid, target=target, vias=vias, panes=panes, at_ms=now_ms, why=why, acts=self.mode == "act"
            )
            for uid, target, vias, panes in turns
            if turn.may(uid, uid)
        ][: turn.room]

    def _back(self, now_ms: int) -> list[DecideRoute]:
        """What is said of flows that go by something where nothing is to act."""
        why = (
            f"cluster.routes is {self.mode}: flows send directly, and heads hold for as long as readers allow"
        )
        return [
            DecideRoute(uid=one.uid, target=one.target, at_ms=now_ms, why=why, acts=False)
            for one in self._log.routings.acting()
        ]

    def _probes(self, found: Found, now_ms: int) -> tuple[tuple[str, ProbeLink], ...]:
        """Whom to ask to probe which links, those first for which this was longest ago, since some may never
        answer. Each agent is asked of one."""
        asked: dict[str, Pair] = {}
        links = found.told.get("links", ())
        unknown = [(one["origin"], one["target"]) for one in links if one["is"] not in SURE]
        for pair in sorted(unknown, key=lambda pair: self._asked_ms.get(pair, 0)):
            ends = found.agents.get(pair[0], ""), found.agents.get(pair[1], "")
            if all(ends) and ends[0] not in asked and len(asked) < PROBES_MAX:
                asked[ends[0]] = pair
                self._asked_ms[pair] = now_ms
        return tuple((at, ProbeLink(to=found.agents[pair[1]])) for at, pair in asked.items())
