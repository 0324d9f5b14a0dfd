"""A stream task whose flows join a table: cuts are small, and a restart has the table again."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa

from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.ranges import split_inputs
from agents.inputs.whole import Whole
from agents.tasks.checkpoints import StoredCheckpoint
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.batch import decode, encode
from elf.fields import replace
from elf.job.commands import Finish, Install, Uninstall
from elf.job.spec import Flow, flow_uid
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.ql.files import tables_of
from elf.ql.planner import plan
from elf.ql.statements import Select, parse
from elf.schema import Column, Schema

JSON = get_format("json")

SCHEMA = Schema((Column("ts", "timestamp"), Column("product", "text")), "ts")
MAKERS = pa.table({"name": [f"p{n}" for n in range(3000)], "maker": [f"m{n % 7}" for n in range(3000)]})


def flow() -> Flow:
    (statement,) = parse(
        "SELECT maker, COUNT(*) AS n FROM x JOIN 'm.csv' AS m ON product = name GROUP BY 1 "
        "WINDOWING 10 SECONDS"
    )
    assert isinstance(statement, Select)
    made = plan(
        statement.query, SCHEMA, stream="x", tables=tables_of(statement.query, {"m.csv": encode(MAKERS)})
    )
    return Flow(flow_uid(made.fragment, ""), made.fragment, bytes(16), "")


def task(store: Store) -> StreamTask:
    settings = WorkerSettings(
        finite=True, future_us=None, lateness_us=None, since_us=LONG_AGO, checkpoint_ms=1 << 60
    )
    return StreamTask(TaskStatus("x", JSON, "ts", ""), settings, store)


def test_a_cut_has_the_digest_and_the_store_the_table(tmp_path: Path) -> None:
    log, store, joined = tmp_path / "log", Store(tmp_path / "state"), flow()
    (table,) = joined.fragment.tables
    lines = [f'{{"ts": "2026-01-01T00:00:0{n % 10}Z", "product": "p{n}"}}' for n in range(100)]
    log.write_text("\n".join(lines) + "\n")
    first = task(store)
    first.perform(Install(joined), 0)
    first.close(checkpoint=True)
    assert store.joined("x") == {table.digest: table.data}
    assert len(store.load_checkpoint("x") or b"") < len(table.data) / 2

    second = task(store)
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, StoredCheckpoint) and one.worker.flows]
    assert joined.uid not in {one.worker.flows[0].flow.uid for one in kept}, "it has all open panes"
    assert second.worker.checkpoint().flows[0].flow.fragment.tables[0].data == table.data
    source = Whole(split_inputs((str(log),), 1)[0])
    while (chunk := source.read(1 << 16, 0)) is not None:
        second.feed(chunk, (), 0)
    sealed = second.perform(Finish(), 0)
    rows = pa.concat_tables([decode(one.payload) for one in sealed.sealed if one.payload]).to_pylist()
    assert {row["k0"]: row["s0_count"] for row in rows} == {f"m{k}": len(range(k, 100, 7)) for k in range(7)}
    second.perform(Uninstall(joined.uid), 0)
    second.close(checkpoint=True)
    assert store.joined("x") == {}
    assert joined == replace(joined, fragment=replace(joined.fragment, tables=(replace(table, data=b""),)))
