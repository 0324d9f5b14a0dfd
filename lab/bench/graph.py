"""``elf bench graph``: PageRank of a window's edges by ``WITH GRAPH``, against scipy alone on the same edges.

A small graph (the size of Wikipedia's votes, 7,115 vertices; or a file with an edge a line) and a large one
are drawn, vertices by a power law. elf's side is the master's final step: from the merged groups of a window
to the ten vertices with the highest ranks. scipy's side is what a person would write: ``numpy.unique`` for
the names, one sparse matrix, as many products. What is before that (lines to groups) is ``elf bench
ingest``'s, what is after it every window's. Each side does it twice in its process, and the second time
counts, as of a window that is not the job's first. CPU time decides, since other work on the machine changes
it least.
"""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import feather
from typer import Option

from elf.errors import ElfError, UserError
from lab.bench.options import Repeat
from lab.bench.runner import Bench, Figure, Report, Scratch
from lab.bench.sides import ask, clocked

TARGET: Final = 1.2
ITERATIONS: Final = 20
TOP: Final = 10
SHORT_SECS: Final = 0.1
"""What is done sooner is told, and no reason to fail: a run differs from the next by more than the target."""
SMALL: Final = (103_689, 7_115)
"""Edges and vertices of Wikipedia's votes (SNAP's wiki-Vote)."""
_QUERY: Final = (
    f"SELECT vertex, rank FROM edges GROUP BY src, dst WITH GRAPH pagerank ITERATIONS {ITERATIONS} "
    f"ORDER BY rank DESC LIMIT {TOP} WINDOWING 1 HOUR"
)
Ints = npt.NDArray[np.int64]


class Asked(msgspec.Struct, frozen=True):
    """Where the edges are, as Arrow has them: ``src`` and ``dst``."""

    path: str


class Answer(msgspec.Struct, frozen=True):
    """The vertices with the highest ranks, and these."""

    seconds: float
    cpu_seconds: float
    vertices: list[int]
    ranks: list[float]


@dataclass(frozen=True)
class GraphRanks(Bench[tuple[str, str], Answer]):
    """Both graphs, each by both sides."""

    edges: Annotated[int, Option("--edges", min=100, help="Of the large graph.")] = 10_000_000
    vertices: Annotated[int, Option("--vertices", min=10, help="Of the large graph, about.")] = 1_000_000
    edge_list: Annotated[
        Path | None,
        Option("--edge-list", metavar="FILE", help="The small graph: an edge a line, two numbers (.gz too)."),
    ] = None
    seed: Annotated[int, Option("--seed", min=0, help="Of what is drawn.")] = 1
    repeat: Repeat = 3

    def sides(self, scratch: Scratch) -> Mapping[tuple[str, str], Callable[[], Answer]]:
        small = drawn(*SMALL, self.seed) if self.edge_list is None else read(self.edge_list)
        found: dict[tuple[str, str], Callable[[], Answer]] = {}
        for name, table in (("small", small), ("large", drawn(self.edges, self.vertices, self.seed))):
            path = scratch.folder / f"{name}.arrow"
            feather.write_feather(table, str(path), compression="uncompressed")
            found[name, "elf"] = partial(ask, by_elf, Asked(str(path)))
            found[name, "scipy"] = partial(ask, by_scipy, Asked(str(path)))
        return found

    def report(self, runs: Mapping[tuple[str, str], Sequence[Answer]]) -> Report:
        facts: dict[str, object] = {}
        figures, problems = list[Figure](), list[str]()
        for graph in ("small", "large"):
            elf, scipy = runs[graph, "elf"], runs[graph, "scipy"]
            _check(graph, elf[0], scipy[0])
            cpu = [statistics.median(run.cpu_seconds for run in side) for side in (elf, scipy)]
            took = [statistics.median(run.seconds for run in side) for side in (elf, scipy)]
            ratio = cpu[0] / cpu[1]
            names = ("elf_cpu_s", "scipy_cpu_s", "elf_s", "scipy_s", "ratio")
            facts[graph] = dict(zip(names, (*cpu, *took, ratio), strict=True))
            what = f"PageRank, {ITERATIONS} iterations, {graph} graph"
            figures.append(Figure(what, cpu[0], "CPU s", {"scipy alone": cpu[1]}))
            if ratio > TARGET and cpu[1] > SHORT_SECS:
                problems.append(f"{graph} graph: {ratio:.2f} times the CPU of scipy alone, not {TARGET}")
        return Report({"edges": self.edges, **facts}, figures, problems=problems)


def _check(graph: str, elf: Answer, scipy: Answer) -> None:
    """Raises ``ElfError`` when the ranks differ; vertices may change places only where ranks are equal."""
    if not np.allclose(elf.ranks, scipy.ranks, rtol=1e-9, atol=0):
        raise ElfError(f"{graph} graph: elf's ranks {elf.ranks} are not scipy's {scipy.ranks}")


def drawn(edges: int, vertices: int, seed: int) -> pa.Table:
    """Different edges, of vertices by a power law."""
    rng = np.random.default_rng(seed)
    ends = [(rng.random(edges + edges // 4) ** 3 * vertices).astype(np.int64) for _ in range(2)]
    ends[1] = rng.permutation(vertices)[ends[1]]  # who is called is not who calls
    codes = np.unique(ends[0] * vertices + ends[1])
    codes = rng.permutation(codes)[:edges]
    return pa.table({"src": codes // vertices, "dst": codes % vertices})


def read(path: Path) -> pa.Table:
    """Raises ``UserError``."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            pairs = [line.split()[:2] for line in lines if line.strip() and not line.startswith("#")]
        found = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read edges of {path}: {error}") from error
    return pa.table({"src": found[:, 0], "dst": found[:, 1]})


def by_elf(asked: Asked) -> Answer:
    """From merged groups to the rows of the window."""
    from agents.tasks.engine import Finisher, no_groups
    from elf.ql.planner import plan_text
    from elf.schema import Column, Schema

    columns = (Column("ts", "timestamp"), Column("src", "bigint"), Column("dst", "bigint"))
    plan = plan_text(_QUERY, Schema(columns, "ts"))
    edges = feather.read_table(asked.path, memory_map=False)
    like = no_groups(plan).schema
    bounds = [pa.repeat(pa.scalar(us, pa.timestamp("us")), edges.num_rows) for us in (0, 3_600_000_000)]
    states = [pa.repeat(pa.scalar(1, field.type), edges.num_rows) for field in list(like)[4:]]
    keys = [edges["dst"], edges["src"]]  # in the order of their text, as plans have them
    groups = pa.table([*bounds, *keys, *states], names=like.names)
    finisher = Finisher(plan)
    finisher.run(groups)
    with clocked() as clock:
        rows = finisher.run(groups)
    finisher.close()
    return Answer(clock.seconds, clock.cpu_seconds, rows["vertex"].to_pylist(), rows["rank"].to_pylist())


def by_scipy(asked: Asked) -> Answer:
    """The same from two arrays."""
    edges = feather.read_table(asked.path, memory_map=False)
    src, dst = (edges[name].to_numpy() for name in ("src", "dst"))
    _ranks(src, dst)
    with clocked() as clock:
        names, rank = _ranks(src, dst)
        best = np.argsort(-rank, kind="stable")[:TOP]
    return Answer(clock.seconds, clock.cpu_seconds, names[best].tolist(), rank[best].tolist())


def _ranks(src: Ints, dst: Ints) -> tuple[Ints, npt.NDArray[np.float64]]:
    """The vertices, and the rank of each."""
    from scipy.sparse import csr_array

    names, places = np.unique(np.concatenate([src, dst]), return_inverse=True)
    size = len(names)
    matrix = csr_array((np.ones(len(src)), (places[len(src) :], places[: len(src)])), shape=(size, size))
    out = np.bincount(places[: len(src)], minlength=size)
    share, ends = np.divide(0.85, out, where=out > 0, out=np.zeros(size)), out == 0
    rank = np.full(size, 1 / size)
    for _ in range(ITERATIONS):
        rank = matrix @ (rank * share) + (0.15 + 0.85 * rank[ends].sum()) / size
    return names, rank
