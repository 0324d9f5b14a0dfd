"""Who maps the rows of jobs on agents, as the entries of the catalog log say it (protocol 13.8): the last
``RowsOffloaded`` of a job and an agent holds, until another one does or the job is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from elf.job.messages.log import OffloadRows, RowsOffloaded

KEPT: Final = 512
"""The last entries, which are shown."""


class Offloads:
    """Those of one log."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], RowsOffloaded] = {}
        self._all: deque[RowsOffloaded] = deque(maxlen=KEPT)
        self._agents: set[str] = set()

    def add(self, entry: RowsOffloaded) -> None:
        self._last[entry.uid, entry.agent_id] = entry
        self._all.append(entry)
        self._agents.add(entry.agent_id)

    def forget(self, job: str) -> None:
        """A job is over; what was said of it is shown for a while."""
        for key in [key for key in self._last if key[0] == job]:
            del self._last[key]

    def names(self, agent_id: str) -> bool:
        """Whether rows of that agent were ever to be mapped elsewhere."""
        return agent_id in self._agents

    def helper(self, job: str, agent_id: str) -> str:
        """Where the rows of a job on an agent are mapped; empty: on the agent itself."""
        one = self._last.get((job, agent_id))
        return "" if one is None else one.helper

    def common(self, jobs: Iterable[str], agent_id: str) -> str:
        """The same of a flow that these jobs read: it is mapped elsewhere if all of them say so, and say the
        same. Nobody waits for what somebody else has asked for."""
        helpers = {self.helper(job, agent_id) for job in jobs}
        return helpers.pop() if len(helpers) == 1 else ""

    def of(self, job: str) -> list[RowsOffloaded]:
        """Those that hold of a job."""
        return [one for (uid, _), one in self._last.items() if uid == job and one.helper]

    def is_news(self, said: OffloadRows) -> bool:
        """Whether it changes anything, and was not overtaken."""
        last = self._last.get((said.uid, said.agent_id))
        had, at_ms = ("", -1) if last is None else (last.helper, last.at_ms)
        return said.helper != had and said.at_ms > at_ms

    def __iter__(self) -> Iterator[RowsOffloaded]:
        """The last ones, in their order."""
        return iter(self._all)
