"""What an agent has measured (``agents.metrics``), and what its transport and its process count, in the text
format 0.0.4 of Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, cast

import psutil
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.disk.durable import waits
from agents.metrics import CHECKPOINT_SECONDS, Family, Metrics, Times
from elf import __version__
from elf.ql.memo import COUNTS
from elf.transport.base import Counters

_FAMILIES: Final = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}


def exposition(metrics: Metrics, more: Sequence[Metric] = ()) -> bytes:
    """All that an agent measures, and ``more``."""
    return generate_latest(_All(metrics, more))


class _All(Collector):
    def __init__(self, metrics: Metrics, more: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._more = more

    def collect(self) -> Iterator[Metric]:
        yield from map(_family, self._metrics.families())
        yield _times(self._metrics.checkpoints)
        yield from _process()
        for counters in self._metrics.transports():
            yield from _transport(counters)
        yield from self._more


def _family(family: Family) -> Metric:
    shown: Any = _FAMILIES[family.kind](family.name, family.about, labels=family.labels)
    for labels, value in family.values():
        shown.add_metric(labels, value)
    return cast(Metric, shown)


def _times(times: Times) -> Metric:
    counts, seconds = times.values()
    bounds = (*map(str, CHECKPOINT_SECONDS), "+Inf")
    return HistogramMetricFamily(
        times.name, times.about, list(zip(bounds, accumulate(counts), strict=True)), seconds
    )


def _transport(counters: Counters) -> Iterator[Metric]:
    """A transport's own counters."""
    for name, about, value in (
        ("messages_sent", "Messages that the transport took.", counters.sent),
        ("sent_bytes", "Bytes of messages that the transport took.", counters.sent_bytes),
        ("messages_received", "Messages that arrived.", counters.received),
        ("received_bytes", "Bytes of messages that arrived.", counters.received_bytes),
    ):
        yield CounterMetricFamily(f"elf_{name}", about, value)
    for name, about, by_reason in (
        ("messages_dropped", "Messages that could not be sent.", counters.dropped),
        ("messages_misshapen", "Messages that the transport did not take in.", counters.refused),
        ("handshakes_failed", "Connections that came to nothing.", counters.handshakes),
    ):
        family = CounterMetricFamily(f"elf_{name}", about, labels=["reason"])
        for reason, count in sorted(by_reason.items()):
            family.add_metric([reason], count)
        yield family


def _process() -> Iterator[Metric]:
    """What the process is and has cost."""
    process = psutil.Process()
    with process.oneshot():
        times, resident = process.cpu_times(), process.memory_info().rss
    yield GaugeMetricFamily("elf_resident_memory_bytes", "Resident memory of the process.", resident)
    fsyncs = CounterMetricFamily(
        "elf_fsyncs", "Times that the process has waited for the disk.", labels=["kind"]
    )
    for kind, count in waits().items():
        fsyncs.add_metric([kind], count)
    yield fsyncs
    yield CounterMetricFamily("elf_cpu_seconds", "CPU time of the process.", times.user + times.system)
    yield CounterMetricFamily("elf_plans_made", "Plans that definitions came to.", COUNTS.total())
    build = GaugeMetricFamily("elf_build_info", "The version that runs.", labels=["version"])
    build.add_metric([__version__], 1)
    yield build
