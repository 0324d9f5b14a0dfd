"""What a backup says of a job that joins rows."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from elf.batch import encode
from elf.cli.backup import Backup, _job
from elf.job.spec import JobSpec
from elf.ql.changes import AlterJob
from elf.ql.definition import Contents, Definition
from elf.ql.plan import TableMoment
from elf.ql.statements import CreateJob, parse
from elf.schema import Column, Schema

SCHEMA = Schema((Column("ip", "text"), Column("ts", "timestamp")), "ts")
QUERY = (
    "SELECT c.n, COUNT(*) AS hits FROM log JOIN TABLE client AS c USING (ip) GROUP BY c.n WINDOWING 2 SECONDS"
)


def test_a_job_that_joins_a_table_begins_with_its_rows_and_joins_it_later() -> None:
    rows = pa.table({"ip": ["a"], "n": [7]})
    table = Contents("c", "TABLE client", encode(rows, small=True), TableMoment("app", 3))
    found = Backup()
    (create,) = _job(JobSpec("met", "me", 0, Definition(QUERY, (("log", SCHEMA),), (table,))), found)
    (statement,) = parse(create)
    assert isinstance(statement, CreateJob)
    assert "JOIN 'files/client.parquet' AS c USING" in statement.query.sql
    assert pq.read_table(io.BytesIO(found.files["files/client.parquet"])).to_pylist() == rows.to_pylist()
    (later,) = parse("".join(found.later))
    assert isinstance(later, AlterJob)
    assert (later.name, later.table) == ("met", ("c", "TABLE client"))
