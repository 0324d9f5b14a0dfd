"""Where a job in Python runs, as its class sees it, and what a call that cannot be done raises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from elf.aggregates import State
from elf.cbt import BufferTree, WindowedTree
from elf.job.program.calls import Place, Subscription
from elf.job.program.values import Message


class JobError(Exception):
    """A call of the job that cannot be done; the text says why and what to do.

    Example:
        >>> master, below = two_agents(Popular)
        >>> below.multicast("update")
        Traceback (most recent call last):
        elf.job.program.host.JobError: only the master multicasts: ask is_root first
    """


class QueryFailed(JobError):
    """A query without a reply: nobody there, no answer in time, an error there, or a cycle of queries.

    Example:
        >>> master, below = two_agents(Popular)
        >>> try:
        ...     master.query("unknown")
        ... except QueryFailed as failed:
        ...     print(failed)
        there is no job unknown
    """


class Host(Protocol):
    """Where a job runs."""

    def subscribe(self, subscription: Subscription) -> None: ...
    def send_to(self, node: str, message: Message, tree: int, *, at_once: bool = False) -> None: ...
    def multicast(self, message: Message, *, at_once: bool = False) -> None: ...
    def feed_back(self, messages: Mapping[Any, Message]) -> None: ...
    def ask_for(self, keys: Iterable[Any]) -> None: ...
    def route(self, app: bytes, message: Message) -> None: ...
    def reply(self, message: Message) -> None: ...
    def query(self, app: bytes, name: str, message: Message, timeout: float) -> Message: ...
    def place(self) -> Place: ...
    def tree_of(self, name: str) -> str: ...
    def tree(
        self, name: str, *, changes: bool = False
    ) -> tuple[BufferTree | WindowedTree, tuple[str, ...], tuple[State, ...]]: ...
