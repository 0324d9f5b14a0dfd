"""The sides of ``elf bench sharing``: a process of its own each, one thread."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from agents.committing import panecommits, windowcommits
from agents.committing.kept import Kept
from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs import Whole, split_inputs
from agents.lanes.engine import Finisher
from agents.lanes.feeding import CHUNK_BYTES_MAX
from agents.lanes.lane import Lane, LaneFacts
from agents.lanes.samples import sample_lines
from elf.batch import decode, encode
from elf.bench.query import plan_of
from elf.bench.sharing import Asked, Spent
from elf.bench.sides import answer
from elf.bench.sliding_side import NO_CUTS
from elf.job.commands import Finish, Install, Outcome
from elf.job.commits import PaneCommit
from elf.job.contributions import Piece
from elf.job.effects import CommitPanes, CommitWindows, Coverage
from elf.job.snapshots import Sealed
from elf.job.spec import START_OF_TIME, Flow, JobSpec, flow_uid
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.ql.plan import Plan

TOP_ROWS: Final = 10


def run(asked: Asked, folder: Path) -> Spent:
    """The lane with one flow or two, the commits, the longer windows."""
    short, long = (_plan(asked, seconds) for seconds in (asked.short_s, asked.long_s))
    flows = [Flow(flow_uid(p.fragment, "bench"), p.fragment, bytes(16), "") for p in (short, long)]
    read = flows if asked.way == "own" else flows[:1]
    lane, source = _lane(asked.path, read)
    began = time.process_time()
    done = _read(lane, source)
    lane_s = time.process_time() - began
    flow, work = read[-1], done.work[read[-1].uid]
    sealed = next(one for one in done.sealed if one.flow == flow.uid)
    root = Store(folder / "root.db")
    rows, commit_s = _committed(root, flow, list(_panes(sealed)))
    job = JobSpec("bench", "bench", 1, replace(long, fragment=flow.fragment), (flow,))
    home = Home(job, root if asked.way == "own" else Store(folder / "home.db"), asked.way == "shared")
    for number, panes in groupby(rows, lambda row: row.start * flow.fragment.pane_us // home.size_us):
        home.take(list(panes), (number + 1) * home.size_us)
    return Spent(
        lane_s,
        work.get("map_us", 0) / 1e6,
        (work.get("tree_us", 0) + work.get("seal_us", 0)) / 1e6,
        commit_s if asked.way == "own" else 0.0,
        home.cpu_s,
        len(rows),
        decode(sealed.payload).num_rows,
        hashlib.sha1(repr(home.rows).encode()).hexdigest(),
    )


def _plan(asked: Asked, seconds: int) -> Plan:
    sql = (
        f"SELECT {asked.key} AS key, SUM(clicks_count) AS clicks FROM input GROUP BY {asked.key} "
        f"ORDER BY clicks DESC, key LIMIT {TOP_ROWS} WINDOWING {seconds} SECONDS"
    )
    return plan_of(sql, get_format("json").schema(pa.array(sample_lines((asked.path,)), pa.string()), None))


def _lane(path: str, flows: Sequence[Flow]) -> tuple[Lane, Whole]:
    settings = WorkerSettings(
        finite=True, future_us=None, lateness_us=None, since_us=LONG_AGO, cut_ms=NO_CUTS
    )
    facts = LaneFacts(flows[0].fragment.stream, get_format("json"), None, "")
    lane = Lane(facts, settings, Store(":memory:"), samples=sample_lines((path,)))
    for flow in flows:
        lane.perform(Install(flow), 0)
    return lane, Whole(split_inputs((path,), 1)[0])


def _read(lane: Lane, source: Whole) -> Outcome:
    """Read everything."""
    while not source.exhausted:
        chunk = source.read(CHUNK_BYTES_MAX, 0)
        if chunk is not None:
            lane.feed(chunk, source.positions(), 0)
    return lane.perform(Finish(), 0)


def _panes(sealed: Sealed) -> Iterator[Piece]:
    """As agents send them while they read: pane by pane."""
    groups, tally = decode(sealed.payload), decode(sealed.tally)
    first, last = (int(bound(tally["_pane"]).as_py()) for bound in (pc.min, pc.max))
    for pane in range(first, last + 1):
        counts, payload = (encode(one.filter(pc.equal(one["_pane"], pane))) for one in (tally, groups))
        yield Piece(pane, pane + 1, 1, counts, payload)


def _committed(store: Store, flow: Flow, pieces: Sequence[Piece]) -> tuple[list[PaneCommit], float]:
    """A root's commits, and their CPU seconds."""
    began = time.process_time()
    for piece in pieces:
        work = CommitPanes(flow, piece.start, piece.end, (piece,), 0, 1, 0)
        panecommits.commit_panes(work, store)
    took = time.process_time() - began
    return store.pane_commits(flow.uid, pieces[0].start, pieces[-1].end), took


class Home:
    """The home of the job with the longer windows. ``copies``: the panes come from a root on another node."""

    def __init__(self, spec: JobSpec, store: Store, copies: bool) -> None:
        self.rows: list[object] = []
        self.cpu_s = 0.0
        self.size_us = spec.plan.windows[0].step_us
        self._spec, self._store, self._copies = spec, store, copies
        self._finisher, self._kept = Finisher(spec.plan.final_sql), Kept()
        self._done_us = START_OF_TIME

    def take(self, panes: Sequence[PaneCommit], last_us: int) -> None:
        """The panes of a window, which ends at ``last_us``."""
        part = Coverage(self._spec.flows[0].uid, panes[0].start, panes[-1].end, 0, 1, 1)
        effect = CommitWindows(self._spec, self._done_us, last_us, (part,), ())
        began = time.process_time()
        for pane in panes if self._copies else ():
            self._store.commit_panes(pane)
        done = windowcommits.commit_windows(effect, self._store, self._finisher, "home", self._kept)
        self.cpu_s += time.process_time() - began
        self._done_us = last_us
        if done.result is not None:
            self.rows += decode(done.result.payload).to_pylist()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="elf-bench-") as folder:
        answer(Asked, lambda asked: run(asked, Path(folder)))


if __name__ == "__main__":
    main()
