"""``elf compare --follow``: each window of a job judged once, soon after it was committed, by one Spark that
stays.

A look asks the fleet for the windows (its members ship their archives), judges those that are due
(``spark_backend.pending``) over the hours that they need, and says how they came out. What is unexplained is
an alert: a line on standard error, a POST to ``--notify``, and the exit status where ``--rounds`` ends it. A
look that fails is said, counted, and made again after ``--every``.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    start_http_server,
    write_to_textfile,
)

from agents.outputs.webhook import Poster, signed
from elf.cli.compare import Asked, Chosen, name_damaged
from elf.cli.printing import say
from elf.errors import ElfError, UserError

if TYPE_CHECKING:
    from spark_backend.compare import Bounds, Comparison, Verdict
    from spark_backend.judging import Spark
    from spark_backend.pending import Pending

EVERY_SECS_MIN: Final = 1.0
KEPT_MAX: Final = 5_000
"""Windows that a report has, the last ones."""
NOTICES_MAX: Final = 100
"""Notices that wait for a server that does not take them; the oldest are dropped, and counted."""
_TIME: Final = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s|m|h)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """Of ``--every``: ``30s``, ``5m``, ``0.5h``, or a number of seconds. Raises ``UserError``."""
    match = _TIME.fullmatch(text.strip())
    found = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
    if found < EVERY_SECS_MIN:
        raise UserError(f"--every {text}: give a time such as 30s or 5m, {EVERY_SECS_MIN:g}s at least")
    return found


class Metrics:
    """What following measures, for Prometheus: over HTTP, or as a file for its node exporter."""

    def __init__(self, job: str, where: str | None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._where = where
        gauge = partial(Gauge, registry=self.registry, labelnames=["job"])
        counter = partial(Counter, registry=self.registry, labelnames=["job"])
        self._windows = Counter(
            "elf_compare_windows",
            "Windows that were judged, by how they came out.",
            registry=self.registry,
            labelnames=["job", "outcome"],
        )
        self._lag = gauge("elf_compare_lag_seconds", "From the newest judged window to the newest.")
        self._took = gauge("elf_compare_look_seconds", "How long the last look took.")
        self._looks = counter("elf_compare_looks", "Looks at the windows.")
        self._failed = counter("elf_compare_looks_failed", "Looks that came to nothing.")
        self._lost = counter("elf_compare_notices_lost", "Notices that nobody took.")
        self._job = job
        for outcome in ("equal", "explained", "unexplained"):
            self._windows.labels(job, outcome)
        for one in (self._lag, self._took, self._looks, self._failed, self._lost):
            one.labels(job)

    def serve(self) -> None:
        """From now on. Raises ``UserError``."""
        if self._where is None or self._is_file:
            self.write()
            return
        host, _, port = self._where.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise UserError(f"--metrics {self._where}: give HOST:PORT, or a file that ends in .prom")
        try:
            start_http_server(int(port), host.strip("[]"), self.registry)
        except OSError as error:
            raise UserError(f"--metrics {self._where}: {(error.strerror or str(error)).lower()}") from None

    @property
    def _is_file(self) -> bool:
        return self._where is not None and self._where.endswith(".prom")

    def write(self) -> None:
        """The file, if there is one. Raises ``UserError``."""
        if self._where is not None and self._is_file:
            try:
                write_to_textfile(self._where, self.registry)
            except OSError as error:
                why = (error.strerror or str(error)).lower()
                raise UserError(f"--metrics {self._where}: {why}") from None

    def looked(self, secs: float, lag_us: int, verdicts: Sequence[Verdict]) -> None:
        self._looks.labels(self._job).inc()
        self._took.labels(self._job).set(secs)
        self._lag.labels(self._job).set(lag_us / 1e6)
        for verdict in verdicts:
            self._windows.labels(self._job, verdict.outcome.name.lower()).inc()

    def failed(self) -> None:
        self._looks.labels(self._job).inc()
        self._failed.labels(self._job).inc()

    def lost(self) -> None:
        self._lost.labels(self._job).inc()


class Notices:
    """Notices to a web server, in their order; what it does not take waits for the next look. Each has a key
    that stays the same, as those of alerts have."""

    def __init__(self, url: str | None, metrics: Metrics) -> None:
        self._url = None if url is None else urlsplit(url)
        if self._url is not None and (self._url.scheme not in ("http", "https") or not self._url.hostname):
            raise UserError(
                f"--notify {url}: give the URL of a web server, such as https://hooks.example.com/elf"
            )
        self._metrics = metrics
        self._waiting: deque[tuple[str, bytes]] = deque()

    def add(self, key: str, notice: Mapping[str, object]) -> None:
        if self._url is None:
            return
        self._waiting.append((key, json.dumps(notice).encode()))
        if len(self._waiting) > NOTICES_MAX:
            self._waiting.popleft()
            self._metrics.lost()

    def send(self) -> None:
        if self._url is None or not self._waiting:
            return
        poster = Poster(self._url)
        try:
            while self._waiting:
                key, body = self._waiting[0]
                poster.post(body, signed(b"", key, int(time.time()), body))
                self._waiting.popleft()
        except (UserError, OSError) as error:
            say(f"elf: {len(self._waiting)} notices wait: {self._url.hostname} does not take them ({error})")
        finally:
            poster.close()


@dataclass
class Follower:
    """What following one job knows."""

    asked: Asked
    chosen: Chosen
    metrics: Metrics
    notices: Notices
    pending: Pending
    kept: dict[Bounds, Verdict] = field(default_factory=dict)
    begun: bool = False
    worst: int = 0
    """Of all verdicts, those that are no longer kept too."""

    def look(self, spark: Spark) -> None:
        """Raises ``ElfError``."""
        from spark_backend import judging

        began = time.monotonic()
        facts = self.asked.fleet.facts()
        known = list(judging.windows_of(facts))
        self._begin(known)
        due = self.pending.due(known)
        verdicts: list[Verdict] = []
        if due:
            judged = judging.judge(spark, facts, set(due).__contains__, name_damaged)
            verdicts = self.pending.settle(judged.windows)
            self._say(verdicts)
            self.worst = max([self.worst, *(int(one.outcome) for one in verdicts)])
            self.kept |= {(one.start_us, one.end_us): one for one in verdicts}
            self.kept = dict(sorted(self.kept.items())[-KEPT_MAX:])
        self.metrics.looked(time.monotonic() - began, self.pending.lag_us(known), verdicts)
        self._write(facts.job.spec.plan.sql)

    def _begin(self, known: list[Bounds]) -> None:
        """The first look begins with the windows that were asked for; by default with those that are not
        committed yet, and the last ones, which are not due."""
        if not self.begun:
            self.begun = True
            every = self.chosen == Chosen()
            wanted = set(known) - set(self.pending.due(known)) if every else set(self.chosen.of(known))
            self.pending.pass_over(set(known) - wanted)

    def comparison(self) -> Comparison:
        from spark_backend.compare import Comparison

        return Comparison((), tuple(self.kept[bounds] for bounds in sorted(self.kept)))

    def _say(self, verdicts: Sequence[Verdict]) -> None:
        from elf.client.values import for_terminal
        from spark_backend.compare import Outcome
        from spark_backend.report import named, window_as_json, window_line

        for verdict in verdicts:
            if self.asked.as_json:
                print(json.dumps({"job": self.asked.fleet.job, **window_as_json(verdict)}))
            else:
                for line in [window_line(verdict)] if verdict.equal else named(verdict):
                    print(for_terminal(line))
            if verdict.outcome is Outcome.UNEXPLAINED:
                text = f"job {self.asked.fleet.job}, {window_line(verdict)}"
                say(f"elf: unexplained: {text}")
                key = f"compare/{self.asked.fleet.job}/{verdict.start_us}/{verdict.end_us}"
                notice = {
                    "kind": "compare",
                    "job": self.asked.fleet.job,
                    "text": text,
                    **window_as_json(verdict),
                }
                self.notices.add(key, notice)
        sys.stdout.flush()

    def _write(self, query: str) -> None:
        self.notices.send()
        self.metrics.write()
        if self.asked.report is not None:
            from spark_backend.page import write

            write(self.comparison(), self.asked.fleet.job, query, self.asked.report)


def follow(asked: Asked, chosen: Chosen) -> int:
    """Until Ctrl-C, or so many looks; the worst of what came out. Raises ``ElfError`` where even the first
    look fails."""
    from spark_backend import judging, session
    from spark_backend.pending import Pending

    every_secs = seconds(asked.every)
    metrics = Metrics(asked.fleet.job, asked.metrics)
    notices = Notices(asked.notify, metrics)
    follower = Follower(asked, chosen, metrics, notices, Pending())
    asked.fleet.facts()  # a job that there is not is said before Spark is started
    metrics.serve()
    done, problem = 0, ""
    while asked.rounds is None or done < asked.rounds:
        with session.opened(asked.master or session.LOCAL, progress=False) as spark:
            while asked.rounds is None or done < asked.rounds:
                began = time.monotonic()
                done += 1
                try:
                    follower.look(spark)
                    problem = ""
                except ElfError as error:
                    metrics.failed()
                    if str(error) != problem:
                        say(f"elf: {error}; the next look is in {every_secs:g} s")
                    problem = str(error)
                if done != asked.rounds:
                    time.sleep(max(0.0, began + every_secs - time.monotonic()))
                if problem and judging.is_gone(spark):
                    break
    if not follower.kept:
        raise UserError(
            f"no window of job {asked.fleet.job} was judged in {done} looks{': ' * bool(problem)}{problem}"
        )
    return follower.worst
