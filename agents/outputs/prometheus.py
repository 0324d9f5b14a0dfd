"""The newest window of a job as gauges on the ``/metrics`` of its master's agent.

    elf_output_<output>_<column>{labels}             a number of a row
    elf_output_<output>_window_end_seconds           of which window they are
    elf_output_<output>_rows_left_out                rows beyond ``series``

Values of rows are labels here, and nowhere else: whoever makes the output says so, the host allows
``prometheus:``, and their number is bounded. Another master begins with its first window; the one before
shows them no more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from agents.outputs.parcels import Parcel, Rank
from agents.outputs.series import Shape
from elf.job.output import OutputSpec

_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_]")


class Gauges:
    """Of one output."""

    def __init__(self, output: OutputSpec, _secret: str) -> None:
        self.output = output
        self._shape = Shape(output)
        self._newest: tuple[tuple[float, Rank], Sequence[Metric]] | None = None

    def put(self, parcels: Sequence[Parcel]) -> None:
        for parcel in parcels:
            end = parcel.window.end
            at = (0.0 if end is None else end.timestamp(), parcel.rank)
            if self._newest is None or self._newest[0] <= at:
                self._newest = at, list(self._made(parcel, at[0]))

    def close(self) -> None:
        self._newest = None

    def families(self) -> Sequence[Metric]:
        """From any thread."""
        newest = self._newest
        return () if newest is None else newest[1]

    def _made(self, parcel: Parcel, end: float) -> Iterator[Metric]:
        table, output = parcel.window.table, _UNFIT.sub("_", self.output.name)
        names = list(_fit(self._shape.labels(table)).values())
        columns = _fit(table.column_names, {"window_end_seconds", "rows_left_out"})
        gauges: dict[str, GaugeMetricFamily] = {}
        for row in self._shape.rows(table):
            for column, value in row.values.items():
                name = f"elf_output_{output}_{columns[column]}"
                about = f"Column {column} of job {parcel.window.name}, its newest window."
                gauges.setdefault(name, GaugeMetricFamily(name, about, labels=names)).add_metric(
                    row.labels, value
                )
        yield from gauges.values()
        name = f"elf_output_{output}_window_end_seconds"
        yield GaugeMetricFamily(name, "The end of that window, since the epoch.", end)
        left_out = max(table.num_rows - self._shape.most, 0)
        yield GaugeMetricFamily(
            f"elf_output_{output}_rows_left_out", "Its rows that are no series.", left_out
        )


def _fit(names: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """What each of these is called there: no two alike, and none as others are that are ``taken``."""
    found: dict[str, str] = {}
    for name in names:
        plain = _UNFIT.sub("_", name)
        if plain.startswith("__") or not plain[:1].isalpha():  # they have a meaning, or are none
            plain = "_" + plain.lstrip("_")
        had, number = {*taken, *found.values()}, 2
        found[name] = plain
        while found[name] in had:
            found[name], number = f"{plain}_{number}", number + 1
    return found
