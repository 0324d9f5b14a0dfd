"""A run that checks a job: windows that its fleet committed against Spark's over the archive, as ``elf
compare`` does. Its rows are the verdicts, a window a row.

A check is one input: it asks the fleet, and judges. When the daemon is killed before it has judged, it begins
again. One that follows judges each window once over all runs of its schedule (``spark_backend.pending``);
which it has judged is in the metadata of its rows, and from there with the schedule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from elf.client import CompareFacts
from elf.errors import UserError
from spark_backend import judging
from spark_backend.compare import EVERYTHING, Bounds, Outcome, Verdict
from spark_backend.pending import Pending
from spark_backend.queue.store import Check
from spark_backend.report import window_as_json

AskFleet = Callable[[Check], CompareFacts]
"""The windows of a job, after its agents have shipped their archives. Raises ``ElfError``."""

_SCHEMA: Final = pa.schema(
    [
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
        ("outcome", pa.string()),
        ("compared", pa.bool_()),
        ("revision", pa.int64()),
        ("live_rows", pa.int64()),
        ("offline_rows", pa.int64()),
        ("error", pa.float64()),
        ("reasons", pa.string()),
        ("differences", pa.string()),
    ]
)
_JUDGED: Final = b"judged"
"""The key of the metadata that says what a check that follows remembers."""


class CheckWork:
    """The work of one check.

    Args:
        spark (SparkSession): of the daemon.
        check (Check): what is to be judged.
        ask (AskFleet): asks the fleet.
        judged (bytes): what the last run of its schedule remembered.

    Example:
        >>> work = CheckWork(spark, Check("busy", "127.0.0.1:7071", "elf"), ask)
        >>> work.result([work.partial(work.inputs()[0])])["outcome"].to_pylist()
        ['equal']
    """

    divisible = False

    def __init__(self, spark: SparkSession, check: Check, ask: AskFleet, judged: bytes = b"") -> None:
        self._spark, self._check, self._ask, self._judged = spark, check, ask, judged

    def inputs(self) -> list[bytes]:
        """The one input."""
        return [b""]

    def partial(self, encoded: bytes) -> pa.Table:
        """The verdicts. Raises ``ElfError``."""
        facts = self._ask(self._check)
        known = list(judging.windows_of(facts))
        pending, remembers = self._pending(), self._check.follow
        if not known and not remembers:
            raise UserError(f"job {self._check.job} has not committed any window yet")
        due = pending.due(known) if all(one != EVERYTHING for one in known) else known
        if remembers and not self._judged:  # from now on
            pending.pass_over(due)
            due = []
        chosen = [one for one in due if self._chosen(one)]
        if self._check.windows is not None:
            chosen = chosen[-self._check.windows :]
        if not chosen and not remembers:
            raise UserError(f"no window of job {self._check.job} in that time is due to be judged")
        verdicts: Sequence[Verdict] = ()
        if chosen:
            left_out: list[str] = []
            found = judging.judge(
                self._spark.newSession(),
                facts,
                set(chosen).__contains__,
                lambda path, why: left_out.append(path),
            )
            verdicts = pending.settle(found.windows) if remembers else found.windows
        return _table(verdicts, pending.kept() if remembers else b"")

    def result(self, tables: Iterable[pa.Table]) -> pa.Table:
        """The same."""
        return next(iter(tables))

    def _pending(self) -> Pending:
        return Pending.of(self._judged) if self._judged else Pending()

    def _chosen(self, bounds: Bounds) -> bool:
        span = self._check.span
        return span is None or (span[0] <= bounds[0] and bounds[1] <= span[1])


def remembered(rows: pa.Table) -> bytes:
    """What the next run of a check that follows begins with; empty for other rows."""
    found: bytes = (rows.schema.metadata or {}).get(_JUDGED, b"")
    return found


def complaint(rows: pa.Table) -> str:
    """What is wrong, where a window is unexplained; empty otherwise."""
    unexplained = [
        start
        for start, outcome in zip(rows["window_start"].to_pylist(), rows["outcome"].to_pylist(), strict=True)
        if outcome == Outcome.UNEXPLAINED.name.lower()
    ]
    if not unexplained:
        return ""
    first = "" if unexplained[0] is None else f", the first of {unexplained[0]:%Y-%m-%dT%H:%M:%SZ}"
    return f"{len(unexplained)} of {rows.num_rows} windows are unexplained{first}"


def _table(verdicts: Sequence[Verdict], judged: bytes) -> pa.Table:
    rows = []
    for one in verdicts:
        said = window_as_json(one)
        whole = (one.start_us, one.end_us) == EVERYTHING
        rows.append(
            {
                **{name: said[name] for name in _SCHEMA.names if name in said},
                "window_start": None if whole else one.start_us,
                "window_end": None if whole else one.end_us,
                "reasons": "; ".join(reason.text for reason in one.reasons),
                "differences": json.dumps(said["differences"]),
            }
        )
    schema = _SCHEMA.with_metadata({_JUDGED: judged} if judged else None)
    return pa.Table.from_pylist(rows, schema)
