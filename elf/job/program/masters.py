"""The masters of jobs in Python whose job groups this agent leads (protocol 14.9).

The master of a job is one object of its class, beside those of the agents. What it has is in the job group: a
checkpoint of its own (``elf.job.program.keeping``), which is durable when the group has committed it. So
whoever leads the group next goes on from there, with the machine of the last one gone, disk and all.

    submitted ─▶ ``BootstrapProgram`` ─▶ its group is there, and led ─▶ the log is asked for the job
       (elected) ─▶ ``take_up`` with the last checkpoint ────────────┴─▶ the log has it ─▶ at work
    at work ─▶ deposed: ``release`` · dropped · the log has it from another founder: its group ends

- A leader that is deposed commits nothing, so nothing that it has done since leaves it.
- Slices for the master are addressed to its seat (``elf.job.program.seats``); which of them came is in the
  same checkpoint. So a slice that another leader has taken is not taken again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elf.job.catalog.log import CatalogLog
from elf.job.effects import Send
from elf.job.messages.log import AddProgram, DropJobEntry, MoveJobGroup
from elf.job.program.keeping import Checkpoint
from elf.job.program.spec import ProgramSpec

ASKING_MS: Final = 250
"""The pause between two requests to a voter of the log, while it lacks something."""


@dataclass
class Led:
    """A master here: ``number`` and ``checkpoint`` are the last ones of its job group. ``at_work``: it
    runs."""

    spec: ProgramSpec
    term: int
    number: int
    checkpoint: Checkpoint | None
    at_work: bool = False


class Masters:
    """Those of the agent at ``address``, by the uids of their jobs."""

    def __init__(self, address: str, log: CatalogLog) -> None:
        self._address = address
        self._log = log
        self._led: dict[str, Led] = {}
        self._next_ms: int | None = None

    def take_up(self, led: Led) -> None:
        """We lead its job group in this term."""
        self._led[led.spec.uid] = led
        self._next_ms = 0

    def release(self, uid: str) -> None:
        """We do not, any more; or the job is over."""
        self._led.pop(uid, None)

    def term(self, uid: str) -> int | None:
        """The term in which it is at work here; None: it is not."""
        led = self._led.get(uid)
        return led.term if led is not None and led.at_work else None

    def begin(self) -> list[Led]:
        """Those that are to be at work from now on."""
        found = [
            led for uid, led in self._led.items() if not led.at_work and self._log.program(uid) is not None
        ]
        found = [led for led in found if not self.is_misfounded(led.spec.uid)]
        for led in found:
            led.at_work = True
        return found

    def is_misfounded(self, uid: str) -> bool:
        """Whether the log has the job from another founder: two nodes believed to be nearest to its key."""
        led = self._led.get(uid)
        if led is None:
            return False
        founder = self._log.bootstrapped_at(uid)
        return founder not in ("", led.spec.master) or self._log.ever(uid) is not None

    def deadline(self) -> int | None:
        return self._next_ms

    def tick(self, now_ms: int, voter: str | None) -> list[Send]:
        """Propose what the catalog log should say and does not say yet."""
        if self._next_ms is None or now_ms < self._next_ms:
            return []
        found = [proposal for uid, led in self._led.items() for proposal in self._lacking(uid, led)]
        self._next_ms = now_ms + ASKING_MS if found else None
        return [] if voter is None else [Send(voter, proposal) for proposal in found]

    def hurry(self) -> None:
        """The log may lack something again."""
        if self._led:
            self._next_ms = 0

    def _lacking(self, uid: str, led: Led) -> list[AddProgram | DropJobEntry | MoveJobGroup]:
        if self._log.is_dropped(uid) or self.is_misfounded(uid):
            return []
        if self._log.program(uid) is None:
            spec = led.spec
            older = [s for s in self._log.programs() if s.app == spec.app and s.generation < spec.generation]
            if older:  # which it replaces: the agent that was asked for that may be gone
                return [DropJobEntry(uid=one.uid, author=spec.author) for one in older]
            return [AddProgram(spec=spec)]
        if self._log.leader(uid) != self._address:
            return [MoveJobGroup(uid=uid, leader=self._address, term=led.term)]
        return []
