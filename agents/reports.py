"""What an agent's log and its metrics say of what its node does (``agents.ports.Reports``), and what it says
itself when it is asked how it is (``elf.wire.clients``): the counters of ``/metrics``, its node's view, and
its process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final, Literal

import psutil

from agents.audit import Audit
from agents.logs import Logger, Seldom
from agents.metrics import Counts, Metrics
from agents.node.node import Node
from agents.ports import Told
from elf import __version__
from elf.job import effects as do
from elf.job.events import Delivered
from elf.job.work import OutputWork
from elf.wire.clients import ONE_SHOT_PREFIX, ArchiveStats, Stats, StreamStats

RETRY_MS: Final = 60_000
"""Between two lines of the log about what an agent sends for a flow."""
_FAILED: Final = {
    "reduce": "a reduce function",
    "final": "a final function",
    "aggregate": "an aggregate, or a graph,",
    "stage": "a later stage of a query",
}


class LogReports:
    """See the module's docstring. ``told`` is called on the loop, the others on any thread."""

    def __init__(
        self,
        node: Node,
        log: Logger,
        metrics: Metrics,
        now_ms: Callable[[], int],
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit
        self._node = node
        self._log = log
        self._metrics = metrics
        self._now_ms = now_ms
        self._seldom = Seldom(RETRY_MS)

    def told(self, effect: Told) -> None:
        match effect:
            case do.Noticed():
                self._metrics.noticed()
                self._log.info("a notice", job=effect.job, text=effect.text, sent_ms=effect.sent_ms)
            case do.Namesake():
                self._log.warning(
                    "another member has this agent's name: if it is this agent with another data folder, "
                    "never start that folder again, and take it off: elf leave --dead NAME; lines that "
                    "both have read count twice",
                    name=self._node.me.name,
                    stream=effect.stream,
                    other_id=effect.agent_id,
                    other_address=effect.address,
                )
            case do.Seen():
                about = {"stream": effect.stream} if effect.stream else {}
                self._log.info(
                    f"an agent {effect.what}", member=effect.name, member_address=effect.address, **about
                )
            case do.Skewed():
                self._log.warning(
                    "an agent's clock is off by more than LATENESS: its rows or others' are late; "
                    "set that clock right (NTP)",
                    clock_of=effect.address,
                    skew_ms=effect.skew_ms,
                    lateness_ms=effect.limit_ms,
                )
            case do.Judged():
                self._metrics.judged(effect.kept, effect.broken)
                if effect.broken and self._seldom.now(("promise", effect.job), self._now_ms()):
                    text = (
                        "a window came later than its job promises: EXPLAIN LATENCY says where the time went"
                    )
                    self._log.warning(text, job=effect.job, promise=effect.promise)
            case do.Unusable():
                self._unusable(effect)
            case do.Refused():
                self._metrics.over_quota(effect.what)
            case do.Disbelieved():
                self._metrics.disbelieved(effect.what)
                text = f"{effect.what} is not believed: {effect.why}"
                self._rarely(effect.what, text, sent_by=effect.sender)
            case do.Audited():
                if self._audit is not None:
                    self._audit.record(effect.what, effect.facts)
            case do.Faulted(about=""):
                self._log.error("a request has failed", reason=repr(effect.error), exc_info=effect.error)
            case do.Faulted():
                self._metrics.faulted(effect.about)
                text = "a message could not be handled, which is a bug of elf: it is dropped"
                self._rarely(
                    effect.about, text, sent_by=effect.sender, kind=effect.about, exc_info=effect.error
                )
            case do.Undone():
                self._log.warning(f"{effect.what} is not done", reason=effect.why)
            case do.Skipped():
                self._metrics.skipped(effect.what)
                text = f"{effect.what} cannot be used, and is skipped: by every agent, and after each restart"
                self._rarely(effect.what, text, reason=effect.why)

    def _rarely(self, about: str, text: str, **facts: object) -> None:
        """One line a minute about each kind; the metrics count all."""
        if self._seldom.now(about, self._now_ms()):
            self._log.error(text, **facts)

    def _unusable(self, effect: do.Unusable) -> None:
        """One line a minute for each agent and flow: they come with every pane."""
        uid, stream = effect.flow.uid, effect.flow.fragment.stream
        for member in self._node.log.members(stream):
            is_its = effect.members >> member.number & 1
            if is_its and self._seldom.now((uid, member.number), self._now_ms()):
                self._log.warning(
                    "what has come of an agent cannot be opened: it is left out, and missing in these panes",
                    sent_by=member.name,
                    flow=uid,
                    panes=[effect.start, effect.end],
                    reason=effect.why,
                )

    def panes_committed(self) -> None:
        self._metrics.panes_committed()

    def windows_committed(self) -> None:
        self._metrics.windows_committed()

    def delivered(self, event: Delivered) -> None:
        before, now, output = event.done.kept, event.kept, event.done.output
        lost = now.lost - before.lost
        self._metrics.delivered(now.windows - before.windows, lost, failed=bool(event.error))
        about = {"output": output.name, "job": event.done.job.name}
        if lost:
            first, last = now.gap
            self._log.warning(
                "results fell out of an output: the job no longer kept them",
                lost=lost,
                first=first,
                last=last,
                **about,
            )
        if event.error and self._seldom.now(("output", output.uid), self._now_ms()):
            self._log.warning("an output is stopped, and tried again", reason=event.error, **about)

    def function_failed(
        self, kind: Literal["reduce", "final", "aggregate", "stage"], reason: str, job: str = ""
    ) -> None:
        about = {"job": job} if job else {}
        if kind != "stage" or self._seldom.now(kind, self._now_ms()):  # each pane may say it
            self._log.error(f"{_FAILED[kind]} has failed", reason=reason, **about)

    def not_made(
        self, job: str, error: Exception, *, early: bool = False, within: tuple[int, int] | None = None
    ) -> None:
        windows = {"windows_us": list(within)} if within is not None else {}
        if early:
            self._log.warning("no early results", job=job, reason=str(error), **windows)
        else:
            self._log.error("a window cannot be finished", job=job, reason=str(error), **windows)


def stats_of(
    node: Node,
    metrics: Metrics,
    backlogs: Mapping[str, int],
    now_ms: int,
    runs_no_code: str = "",
    outputs: tuple[str, ...] = (),
    archives: Iterable[ArchiveStats] = (),
) -> Stats:
    """``backlogs``: bytes that wait, by stream; the agent has these streams."""
    counted = metrics.streams()
    process = _process()
    with process.oneshot():
        times, resident = process.cpu_times(), process.memory_info().rss
    return Stats(
        incarnation=node.me.incarnation,
        clock_us=now_ms * 1_000,
        state="leaving" if node.leaving else "live" if node.ready else "joining",
        streams=tuple(
            StreamStats(stream, **counted.get(stream, Counts()), backlog_bytes=max(waiting, 0))
            for stream, waiting in sorted(backlogs.items())
        ),
        jobs=_mastered(node),
        flows=node.flows,
        windows=metrics.committed(),
        retained=node.sender.retained(),
        resident_bytes=resident,
        cpu_us=int((times.user + times.system) * 1e6),
        runs_no_code=runs_no_code,
        outputs=outputs,
        outputs_stopped=sum(bool(one.error) for one in outputs_of(node)),
        archives=tuple(archives),
        version=__version__,
    )


def outputs_of(node: Node) -> list[OutputWork]:
    """How the outputs of the jobs are whose master is here."""
    return [one for group in node.job_groups for one in group.outputs.work()]


def _mastered(node: Node) -> int:
    """Jobs whose master is here, in SQL or in Python; a SELECT is none."""
    here = sum(not job.spec.name.startswith(ONE_SHOT_PREFIX) for job in node.job_groups.jobs())
    return here + sum(node.overlay.is_root(topic) for spec in node.log.programs() for topic in spec.topics)


@cache
def _process() -> psutil.Process:
    return psutil.Process()
