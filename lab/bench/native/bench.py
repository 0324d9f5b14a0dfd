"""``elf bench native``: lines by the million, natively and by SQL. Any difference makes it fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from typer import Option

from lab.bench.native.compare import Compared, compare
from lab.bench.native.drawing import FORMATS
from lab.bench.runner import Bench, Figure, Report, Scratch

_BATCH: Final = 2_000
"""Lines of a seed: they share their columns."""
_SHOWN: Final = 20


@dataclass(frozen=True)
class Native(Bench[str, Compared]):
    """Each format by turns."""

    lines: Annotated[int, Option("--lines", min=1, help="So many, of all formats together.")] = 100_000
    seed: Annotated[int, Option("--seed", help="The first one; each next batch has the next.")] = 1

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Compared]]:
        """The formats."""
        return {format: partial(self._all, format) for format in FORMATS}

    def _all(self, format: str) -> Compared:
        lines = decided = 0
        differences: list[str] = []
        share = -(-self.lines // len(FORMATS))
        for seed in range(self.seed, self.seed + -(-share // _BATCH)):
            if len(differences) >= _SHOWN:
                break
            compared = compare(format, seed, min(_BATCH, share - lines))
            lines, decided = lines + compared.lines, decided + compared.decided
            differences += compared.differences
        return Compared(lines, decided, differences)

    def report(self, runs: Mapping[str, Sequence[Compared]]) -> Report:
        """Lines, how many of them were decided natively, and what differs."""
        all_runs = [run for each in runs.values() for run in each]
        lines, problems = sum(run.lines for run in all_runs), [d for run in all_runs for d in run.differences]
        facts = {
            format: {"lines": sum(r.lines for r in each), "decided": sum(r.decided for r in each)}
            for format, each in runs.items()
        }
        return Report(
            facts,
            [Figure("lines read natively as by SQL, drawn and spoilt", lines - len(problems), f"of {lines}")],
            problems=problems[:_SHOWN],
        )
