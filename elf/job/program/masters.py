"""The masters of jobs in Python whose job groups this agent leads (protocol 14.9).

The master of a job's tree is one object of its class, beside those of the agents. What it has is in the job
group of the tree: a checkpoint of its own (``elf.job.program.keeping``), which is durable when the group has
committed it. So whoever leads the group next goes on from there, with the machine of the last one gone, disk
and all.

    submitted ─▶ ``BootstrapProgram`` ─▶ its group is there, and led ─▶ the log is asked for the job
       (elected) ─▶ ``take_up`` with the last checkpoint ────────────┴─▶ the log has it ─▶ at work
    at work ─▶ deposed: ``release`` · dropped · the log has it from another founder: its group ends

- A leader that is deposed commits nothing, so nothing that it has done since leaves it.
- Slices for a master are addressed to its seat (``elf.job.program.seats``); which of them came is in the
  same checkpoint. So a slice that another leader has taken is not taken again.
- The groups of a job's further trees are named by the log's entry, and bootstrapped as those of key ranges
  (``elf.job.catalog.bootstrap``): they are taken up when the log has them as begun (protocol 14.11).
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
    """The master of a ``tree`` of a job, here: ``number`` and ``checkpoint`` are the last ones of its job
    group. ``at_work``: it runs."""

    spec: ProgramSpec
    term: int
    number: int
    checkpoint: Checkpoint | None
    tree: int = 0
    at_work: bool = False

    @property
    def group(self) -> str:
        """The uid of its job group."""
        return self.spec.groups[self.tree]


class Masters:
    """Those of the agent at ``address``, by the uids of their job groups."""

    def __init__(self, address: str, log: CatalogLog) -> None:
        self._address = address
        self._log = log
        self._led: dict[str, Led] = {}
        self._next_ms: int | None = None

    def take_up(self, led: Led) -> None:
        """We lead its job group in this term."""
        self._led[led.group] = led
        self._next_ms = 0

    def release(self, group: str) -> None:
        """We do not, any more; or the job is over."""
        self._led.pop(group, None)

    def begin(self) -> list[Led]:
        """Those that are to be at work from now on."""
        waiting = [led for led in self._led.values() if not led.at_work]
        found = [led for led in waiting if self._log.program(led.spec.uid) is not None]
        found = [led for led in found if not self.is_misfounded(led.group)]
        for led in found:
            led.at_work = True
        return found

    def is_misfounded(self, group: str) -> bool:
        """Whether the log has the job from another founder: two nodes believed to be nearest to its key. Who
        founds the groups of further trees the log itself decides."""
        led = self._led.get(group)
        if led is None or led.tree:
            return False
        uid = led.spec.uid
        founder = self._log.bootstrapped_at(uid)
        return founder not in ("", led.spec.master) or self._log.ever(uid) is not None

    def deadline(self) -> int | None:
        return self._next_ms

    def tick(self, now_ms: int, voter: str | None) -> list[Send]:
        """Propose what the catalog log should say and does not say yet."""
        if self._next_ms is None or now_ms < self._next_ms:
            return []
        found = [proposal for led in self._led.values() for proposal in self._lacking(led)]
        self._next_ms = now_ms + ASKING_MS if found else None
        return [] if voter is None else [Send(voter, proposal) for proposal in found]

    def hurry(self) -> None:
        """The log may lack something again."""
        if self._led:
            self._next_ms = 0

    def _lacking(self, led: Led) -> list[AddProgram | DropJobEntry | MoveJobGroup]:
        spec, group = led.spec, led.group
        if self._log.is_dropped(spec.uid) or self.is_misfounded(group):
            return []
        if self._log.program(spec.uid) is None:
            older = [s for s in self._log.programs() if s.app == spec.app and s.generation < spec.generation]
            if older:  # which it replaces: the agent that was asked for that may be gone
                return [DropJobEntry(uid=one.uid, author=spec.author) for one in older]
            return [AddProgram(spec=spec)]
        if self._log.leader(group) != self._address:
            return [MoveJobGroup(uid=group, leader=self._address, term=led.term)]
        return []
