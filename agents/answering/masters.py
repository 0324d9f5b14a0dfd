"""What people are told where a job's master or the root of its flow is not at work: as much as this agent and
the one that the log names know.

A home goes on with most of the agents that keep it. Who keeps it only these know; that its leader is taken
for dead, or is no leader, everybody can find out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import Final

import msgspec

from agents.answering.asks import SILENT, Ask, ToAddress
from elf.job import messages as say
from elf.job.log.readers import not_led
from elf.job.log.streamlog import StreamLog
from elf.job.spec import Flow, JobSpec
from elf.job.work import InspectWork, WorkFacts

HOMES_ASKED_MAX: Final = 16
"""Agents that are asked which jobs they are masters of."""


class Masters:
    """``named`` says an address with its agent's name; ``live``: the agents that this one knows to live."""

    def __init__(
        self, log: StreamLog, named: Callable[[str], str], live: Callable[[], Collection[str]]
    ) -> None:
        self._log = log
        self._named = named
        self._live = live

    def not_led(self, specs: Sequence[JobSpec]) -> Generator[list[Ask], list[say.Answer], dict[str, str]]:
        """Of jobs whose masters are not at work, why, by uid."""
        homes: dict[str, list[JobSpec]] = {}
        for spec in specs:
            homes.setdefault(self._log.home(spec.uid) or spec.home, []).append(spec)
        live = self._live()
        found = {s.uid: self.said(at, SILENT) for at in homes.keys() - live for s in homes[at]}
        asked = [at for at in homes if at in live][:HOMES_ASKED_MAX]
        answers = yield [
            ToAddress(at, InspectWork(id=0, origin="", flows=(), jobs=tuple(s.uid for s in homes[at])))
            for at in asked
        ]
        for at, answer in zip(asked, answers, strict=True):
            why, there = answer.error or not_led(self._log), set[str]()
            if not answer.error:
                there = {one.job for one in msgspec.msgpack.decode(answer.body, type=WorkFacts).jobs}
            found |= {s.uid: self.said(at, why) for s in homes[at] if s.uid not in there}
        return found

    def said(self, address: str, error: str, who: str = "its master") -> str:
        """What it says against a question, or what its silence means."""
        named = f"{who}, {self._named(address)},"
        if error != SILENT:
            return f"{named} says: {error}"
        if address in self._live():
            return f"{named} does not answer; try again in a moment"
        return f"{named} is not heard of; another one goes on when most of those that keep the job are there"

    def told_by_root(self, flow: Flow, error: str) -> str:
        """The same of the root of a job's flow."""
        return self.said(flow.home, error, "the root of its flow")
