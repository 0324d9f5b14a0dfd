"""``elf bench topk``: what goes up of a LIMIT's groups with thresholds (``elf.job.thresholds``), beside all
groups, APPROXIMATE, and the three rounds of TPUT.

Agents seal panes of rows with Zipf-distributed keys, and one root merges them, with the functions that stream
tasks and roots use and no network; rows and bytes are of the encoded tables that would be sent by all agents
together. TPUT is counted, not run: the first k of each agent, what may still be above (the k-th partial sum
over the number of agents), and the values of the candidates that are left. It counts rows and keys only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
from typer import Option

from elf.aggregates import merge_tables
from elf.batch import encode
from elf.errors import ElfBug
from elf.job.approximate import keep_best, with_cut
from elf.job.counters import COUNTER_STATES, counters
from elf.job.snapshots import Threshold
from elf.job.thresholds import (
    LEFT_STATES,
    SEEN_STATE,
    Asking,
    Unsure,
    excerpt,
    first_rows,
    left,
    seen,
    threshold_of,
)
from elf.job.tops import cut_panes
from elf.ql.plan import Fragment
from elf.schema import Column, Schema
from lab.bench.measure import plan_of
from lab.bench.options import Agents
from lab.bench.runner import Bench, Figure, Report, Scratch

_SCHEMA: Final = Schema((Column("page", "bigint"),), event_time="ts")
_QUERY: Final = (
    "SELECT page, COUNT(*) AS hits FROM input GROUP BY page ORDER BY hits DESC LIMIT {}{} "
    "WINDOWING 10 SECONDS{}"
)
SEED: Final = 5
WAYS: Final = ("all", "approximate", "tput")
"""What thresholds are compared with."""


@dataclass(frozen=True)
class TopK(Bench[str, Counter[str]]):
    """Agents and a root without a network."""

    agents: Agents = 6
    rows: Annotated[int, Option("--rows", min=1, help="Rows of a pane, of all agents.")] = 200_000
    keys: Annotated[int, Option("--keys", min=2, help="Different keys.")] = 50_000
    skew: Annotated[float, Option("--skew", min=0, help="Of Zipf's law; 0: all keys alike.")] = 1.05
    first: Annotated[int, Option("--first", min=1, help="The LIMIT.")] = 10
    panes: Annotated[int, Option("--panes", min=1, help="How many; means.")] = 20

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Counter[str]]]:
        """All ways are counted on the same panes, at once."""
        return {"all": self._sent}

    def _sent(self) -> Counter[str]:
        """The first pane, of which all groups go up in any case, is not counted."""
        exact = plan_of(_QUERY.format(self.first, "", " STRAGGLERS LEAP"), _SCHEMA).fragment
        some = plan_of(_QUERY.format(self.first, " APPROXIMATE", ""), _SCHEMA).fragment
        assert some.keep is not None
        rng, sent = np.random.default_rng(SEED), Counter[str]()
        shares = 1 / np.arange(1, self.keys + 1) ** self.skew
        shares, names = shares / shares.sum(), rng.permutation(self.keys)
        rollup, state = _Thresholds(exact, sent), exact.states[0].name
        for pane in range(self.panes + 1):
            if pane == 1:
                sent.clear()
            leaves = [
                _leaf(pane, names, rng.multinomial(self.rows // self.agents, shares), state)
                for _ in range(self.agents)
            ]
            for leaf, tallied in leaves:
                _count(sent, "all", leaf, tallied)
                best = leaf.rename_columns(["_pane", "k0", some.keep.state])
                kept, counted = keep_best(best, tallied, some.keep)
                _count(sent, "approximate", kept, with_cut(counted) or tallied)
            sent["tput_rows"] += _tput([leaf for leaf, _ in leaves], exact, self.first)
            rollup.pane(leaves)
        return sent

    def report(self, runs: Mapping[str, Sequence[Counter[str]]]) -> Report:
        """Rows and bytes a pane."""
        (sent,) = runs["all"]
        means = {
            name: round(n / self.panes)
            for name, n in sorted(sent.items())
            if name.endswith(("_rows", "_bytes"))
        }
        what = f"the first {self.first} of {self.keys:,} keys (Zipf {self.skew:g}), {self.agents} agents"
        return Report(
            {**asdict(self), **means, "asked_again": sent["unsure"]},
            [
                Figure(
                    f"{what}: {unit} sent up a pane, exactly",
                    means[f"thresholds_{unit}"],
                    unit,
                    {way: means[f"{way}_{unit}"] for way in WAYS if f"{way}_{unit}" in means},
                )
                for unit in ("rows", "bytes")
            ],
        )


def _leaf(pane: int, names: np.ndarray, counts: np.ndarray, state: str) -> tuple[pa.Table, pa.Table]:
    """An agent's groups of a pane, and their counters."""
    there = np.flatnonzero(counts)
    columns = {"_pane": np.full(len(there), pane), "k0": names[there], state: counts[there]}
    return pa.table(columns), counters(np.array([pane]), rows_in=int(counts.sum()))


def _count(sent: Counter[str], what: str, groups: pa.Table, tallied: pa.Table) -> None:
    sent[f"{what}_rows"] += groups.num_rows
    sent[f"{what}_bytes"] += len(encode(groups)) + len(encode(tallied))


class _Thresholds:
    """A root and what its agents send it, pane by pane."""

    def __init__(self, fragment: Fragment, sent: Counter[str]) -> None:
        self._fragment = fragment
        self._sent = sent
        self._asking = Asking()
        self._told: Threshold | None = None

    def pane(self, leaves: list[tuple[pa.Table, pa.Table]]) -> None:
        """Raises ``ElfBug`` if the first rows are not those of all groups."""
        fragment, sent = self._fragment, self._sent
        assert fragment.first is not None
        whole = merge_tables([leaf for leaf, _ in leaves], ("_pane", "k0"), fragment.states)
        parts = [
            (self._told and excerpt(leaf, counted, self._told, fragment)) or (leaf, counted)
            for leaf, counted in leaves
        ]
        for part in parts:
            _count(sent, "thresholds", *part)
        states, counts = (*fragment.states, SEEN_STATE), (*COUNTER_STATES, *LEFT_STATES)
        merged = merge_tables([seen(one) for one, _ in parts], ("_pane", "k0"), states)
        try:
            counted = merge_tables([left(one) for _, one in parts], ("_pane",), counts)
            found, _ = first_rows(merged, counted, fragment, self._asking.last)
        except Unsure:
            sent["unsure"] += 1
            self._told = None if self._asking.unsure() else self._told
            for leaf in leaves:
                _count(sent, "thresholds", *leaf)
            merged = found = whole
        right = cut_panes(whole, fragment.first, fragment.states)
        if not set(map(tuple, _rows(right))) <= set(map(tuple, _rows(found))):
            raise ElfBug("the first rows with thresholds are others")
        news = self._asking.committed(threshold_of(merged, len(leaves), fragment))
        if news is not None:
            self._told = news
            sent["thresholds_bytes"] += len(leaves) * (len(news.watched) + 8)


def _rows(table: pa.Table) -> list[list[int]]:
    return [list(row.values()) for row in table.to_pylist()]


def _tput(leaves: list[pa.Table], fragment: Fragment, first: int) -> int:
    """Rows and keys of its three rounds."""
    state, most = fragment.states[0].name, 1 + max(max(leaf["k0"].to_pylist()) for leaf in leaves)
    values = np.zeros((len(leaves), most), np.int64)
    for place, leaf in enumerate(leaves):
        values[place, leaf["k0"].to_numpy()] = leaf[state].to_numpy()
    one = np.zeros(values.shape, np.bool_)
    np.put_along_axis(one, np.argpartition(values, -first, axis=1)[:, -first:], True, axis=1)
    partial = np.where(one, values, 0).sum(axis=0)
    least = np.partition(partial, -first)[-first] / len(leaves)
    two = one | ((values >= least) & (values > 0))
    known = np.where(two, values, 0).sum(axis=0)
    bound = np.partition(known, -first)[-first]
    candidates = (known + (~two).sum(axis=0) * least >= bound) & two.any(axis=0)
    three = candidates.sum() * len(leaves) + ((values > 0) & ~two)[:, candidates].sum()
    return int(two.sum() + three)
