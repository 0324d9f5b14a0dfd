"""What agents of a bench's fleet take and do over a span: read twice, from the kernel and from the agents."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import psutil
from prometheus_client.parser import text_string_to_metric_families

from elf.cli.processes import Agent
from elf.errors import ElfError

COUNTED: Final = {
    "messages": "elf_messages_sent_total",
    "sent_bytes": "elf_sent_bytes_total",
    "fsyncs": "elf_fsyncs_total",
    "windows": "elf_windows_committed_total",
    "panes": "elf_panes_committed_total",
}
"""By their names here, what an agent counts itself, all its labels together."""


@dataclass(frozen=True)
class Meter:
    """One agent since its start. ``loop_s`` and ``threads_s``: CPU seconds (user and system) of the thread
    that has the agent's loop, and of all others, or an equal share of them where agents share a process;
    ``windows`` and ``panes``: commits, of one or of several.
    """

    loop_s: float
    threads_s: float
    messages: float
    sent_bytes: float
    fsyncs: float
    windows: float
    panes: float

    @property
    def cpu_s(self) -> float:
        return self.loop_s + self.threads_s

    def since(self, before: Meter) -> Meter:
        """What came to it after that."""
        return Meter(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(Meter)))


async def read(agents: Sequence[Agent]) -> list[Meter]:
    """All of them, now. Raises ``ElfError`` when one does not count what is wanted."""
    sharing = _sharing(agents)
    reads = (asyncio.to_thread(_read, agent, sharing[agent.pid]) for agent in agents)
    return list(await asyncio.gather(*reads))


def counts(http: str) -> dict[str, float]:
    """What the agent at this address counts itself since its start, all labels of a name together."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def _sharing(agents: Sequence[Agent]) -> Counter[int | None]:
    """How many agents each process has."""
    return Counter(agent.pid for agent in agents)


def _read(agent: Agent, sharing: int) -> Meter:
    times = psutil.Process(agent.pid).cpu_times()
    loop = next(t for t in psutil.Process(agent.pid).threads() if t.id == agent.pid)
    loop_s, all_s = loop.user_time + loop.system_time, times.user + times.system
    found = counts(agent.http or "")
    missing = [name for name in COUNTED.values() if name not in found]
    if missing:
        raise ElfError(f"the agent at {agent.http} does not count {', '.join(missing)}")
    counted = {name: found[metric] for name, metric in COUNTED.items()}
    return Meter(loop_s / sharing, (all_s - loop_s) / sharing, **counted)


def resident_mib(agents: Sequence[Agent]) -> list[float]:
    """What each has for itself (unique set size, or its share of its process's), in MiB: they share what they
    were forked of."""
    sharing = _sharing(agents)
    uss = {pid: psutil.Process(pid).memory_full_info().uss for pid in sharing}
    return [round(uss[agent.pid] / sharing[agent.pid] / (1 << 20), 1) for agent in agents]
