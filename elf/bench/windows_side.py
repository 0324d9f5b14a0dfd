"""The sides of ``elf bench windows``: a process of its own each, one thread."""

from __future__ import annotations

import hashlib
import time

import pyarrow as pa
import pyarrow.compute as pc

from elf.bench.sides import answer
from elf.bench.sliding_side import Master, installed, sealed_of
from elf.bench.windows import MINUTE_US, Asked, Spent
from elf.job.spec import END_OF_TIME, START_OF_TIME


def run(asked: Asked) -> Spent:
    """Read, seal, commit the panes, commit the windows."""
    windowing = ", ".join(f"{minutes} MINUTES" for minutes in asked.minutes)
    spec, lane, source = installed(asked.path, "", windowing)
    master = Master(spec)
    began = time.process_time()
    sealed = sealed_of(lane, source)
    mapped = time.process_time()
    master.panes(sealed.start, sealed.end, sealed.tally, sealed.payload)
    master.windows(START_OF_TIME, END_OF_TIME, (sealed.start, sealed.end))
    ended = time.process_time()
    rows = pa.concat_tables(master.rows)
    length = pc.subtract(rows["window_end"].cast(pa.int64()), rows["window_start"].cast(pa.int64()))
    minutes = rows.filter(pc.equal(length, MINUTE_US)).to_pylist()
    digest = hashlib.sha1(repr(minutes).encode()).hexdigest()
    return Spent(mapped - began, ended - mapped, rows.num_rows, digest)


def main() -> None:
    answer(Asked, run)


if __name__ == "__main__":
    main()
