"""What windows are made of: what a store has committed, or that and panes that are committed together with
the windows (protocol 5.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elf.job.commits import PaneCommit, PaneCommitName, WindowCommit


class Committed(Protocol):
    """``agents.disk.store.Store`` is one."""

    def pane_commits(self, flow: str, start: int, end: int) -> list[PaneCommit]: ...
    def pane_names(self, flow: str, start: int, end: int) -> list[PaneCommitName]: ...
    def windows(self, job: str, from_us: int, to_us: int) -> list[WindowCommit]: ...


@dataclass(frozen=True)
class WithPanes:
    """What is ``committed``, and ``panes`` that are to be: new ones of their flow."""

    committed: Committed
    panes: PaneCommit

    def pane_commits(self, flow: str, start: int, end: int) -> list[PaneCommit]:
        return [*self.committed.pane_commits(flow, start, end), *self._within(flow, start, end)]

    def pane_names(self, flow: str, start: int, end: int) -> list[PaneCommitName]:
        return [*self.committed.pane_names(flow, start, end), *self._within(flow, start, end)]

    def windows(self, job: str, from_us: int, to_us: int) -> list[WindowCommit]:
        return self.committed.windows(job, from_us, to_us)

    def _within(self, flow: str, start: int, end: int) -> list[PaneCommit]:
        one = self.panes
        return [one] if one.flow == flow and one.start < end and start < one.end else []
