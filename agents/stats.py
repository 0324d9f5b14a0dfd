"""What an agent says of itself when it is asked how it is (``elf.wire.clients``): the counters of
``/metrics``, its node's view, and its process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import psutil

from agents.metrics import Counts, Metrics
from agents.node.node import Node
from elf.wire.clients import ONE_SHOT_PREFIX, Stats, StreamStats


def stats_of(node: Node, metrics: Metrics, backlogs: Mapping[str, int], now_ms: int) -> Stats:
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
    )


def _mastered(node: Node) -> int:
    """Jobs whose master is here, in SQL or in Python; a SELECT is none."""
    here = sum(not job.spec.name.startswith(ONE_SHOT_PREFIX) for job in node.job_groups.jobs())
    return here + sum(node.overlay.is_root(spec.app) for spec in node.log.programs())


@cache
def _process() -> psutil.Process:
    return psutil.Process()
