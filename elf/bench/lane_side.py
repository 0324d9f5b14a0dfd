"""elf's side of ``elf bench ingest``: the lane of a real agent, fed from a file on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from agents.driver import CHUNK_BYTES_MAX
from agents.formats import get_format
from agents.inputs import Whole, split_inputs
from agents.lane import Lane, LaneFacts
from agents.samples import sample_lines
from agents.store import Store
from elf.batch import decode
from elf.bench.ingest import Task
from elf.bench.measure import Done, side
from elf.bench.query import plan_of
from elf.job.spec import Flow, flow_uid
from elf.job.worker import LONG_AGO, Finish, Install, WorkerSettings

NO_CUTS: Final = 1 << 60


def prepare(task: Task) -> Callable[[], Done]:
    """A lane with the query's flow installed."""
    paths = (task.path,)
    format_ = get_format(task.format)
    samples = sample_lines(paths)
    plan = plan_of(task.query, format_.schema(pa.array(samples, pa.string()), None))
    settings = WorkerSettings(
        finite=True, future_us=None, lateness_us=None, since_us=LONG_AGO, cut_ms=NO_CUTS
    )
    stream = plan.fragment.stream
    lane = Lane(
        LaneFacts(stream, format_, None, ""),
        settings,
        Store(":memory:"),
        samples=samples,
    )
    lane.perform(Install(Flow(flow_uid(plan.fragment, "bench"), plan.fragment, bytes(16), "")), 0)
    source = Whole(split_inputs(paths, 1)[0])

    def work() -> Done:
        while not source.exhausted:
            chunk = source.read(CHUNK_BYTES_MAX, 0)
            if chunk is not None:
                lane.feed(chunk, source.positions(), 0)
        sealed = lane.perform(Finish(), 0).sealed
        return Done(lane.rows_read, sum(decode(one.payload).num_rows for one in sealed if one.payload))

    return work


if __name__ == "__main__":
    side(prepare)
