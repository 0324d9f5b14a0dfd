"""Broadcasts: messages from people to every worker of a job, at once and outside the panes (``NOTIFY JOB j
'text'``).

    an agent --NotifyJob--> the root of each flow --Notice, down the flow's tree--> every agent that runs it

A root sends a broadcast once, and answers to which agents it goes. An agent that runs several flows of the
job takes it from the first of them. The tree numbers and repairs broadcasts as every multicast, so each agent
takes it once and in order. An agent that is away for longer than a repair lasts, or joins later, never hears
it: a broadcast is news, not state. Each agent keeps the last ``KEPT_MAX`` broadcasts of each job that it
runs; they end with the job, and with the process. Some agents may miss a broadcast when a tree has more of
them than it keeps (``OverlayConfig.kept_max``); each agent counts what it missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import Final

import msgspec

from elf.job.catalog.log import CatalogLog
from elf.job.catalog.readers import not_led
from elf.job.catalog.wishes import Wishes, refused_change
from elf.job.effects import Disbelieved, Effect, Multicast, Noticed, Send
from elf.job.messages.inquiries import NotifyJob
from elf.job.messages.rollup import Broadcast
from elf.job.rollup.root import Root
from elf.wire.base import Answer

KEPT_MAX: Final = 100
"""Broadcasts of a job that an agent keeps."""
CHARS_MAX: Final = 4_096
"""The longest broadcast."""


class Heard(msgspec.Struct, frozen=True):
    """A broadcast as an agent has it; both times are clocks in milliseconds: the root's, and its own."""

    text: str
    sent_ms: int
    heard_ms: int


class Broadcasts:
    """The broadcasts of one node, as a root and as a worker."""

    def __init__(self, log: CatalogLog) -> None:
        self._log = log
        self._wishes = Wishes(log)
        self._heard: dict[str, deque[Heard]] = {}

    def asked(
        self, request: NotifyJob, root: Root | None, is_root: Callable[[bytes], bool], now_ms: int
    ) -> list[Effect]:
        """At the root of a flow of the job (else ``root`` is None): send it, and return who gets it."""
        error = ""
        reached: tuple[str, ...] = ()
        spec = self._log.job(request.uid)
        if spec is not None and (why := refused_change(self._log, request, spec, now_ms)):
            answer = Answer(id=request.id, error=f"refused: {why}")
            return [Disbelieved("NotifyJob", request.origin, why), Send(request.origin, answer)]
        if root is None or spec is None:
            error = not_led(self._log, job=request.uid)
        elif root.first_pane is None or not is_root(root.flow.topic):
            error = "the job's tree is not ready; nothing was sent, try again in a moment"
        else:
            reached = root.answers.reached()
        answer = Answer(id=request.id, error=error, body=msgspec.msgpack.encode(reached))
        if error or root is None:
            return [Send(request.origin, answer)]
        broadcast = Broadcast(
            job=request.uid,
            sent_ms=now_ms,
            text=request.text,
            flow=root.flow.uid,
            author=request.author,
        )
        return [Multicast(root.flow.topic, broadcast), Send(request.origin, answer)]

    def heard(self, broadcast: Broadcast, runs: Container[str], now_ms: int) -> list[Effect]:
        """A broadcast has come down the tree of a flow; ``runs`` are the flows that this agent runs."""
        spec = self._log.job(broadcast.job)
        if spec is None:
            return []  # dropped meanwhile
        if broadcast.flow != next((flow.uid for flow in spec.flows if flow.uid in runs), broadcast.flow):
            return []
        if why := self._wishes.refused(broadcast, spec, now_ms):
            return [Disbelieved("Broadcast", "", why)]
        kept = self._heard.setdefault(broadcast.job, deque(maxlen=KEPT_MAX))
        kept.append(Heard(broadcast.text, broadcast.sent_ms, now_ms))
        return [Noticed(spec.name, broadcast.text, broadcast.sent_ms)]

    def of(self, uid: str) -> tuple[Heard, ...]:
        """The last broadcasts of a job, oldest first."""
        return tuple(self._heard.get(uid, ()))

    def forget(self, uid: str) -> None:
        """The job has ended."""
        self._heard.pop(uid, None)
