"""Aggregates of people's own in a fleet with keys: what a member that lies can make of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from elf.client import connect
from elf.errors import ElfError, UserError
from elf.fields import replace
from elf.job.catalog.admission import entry_for, grow
from elf.job.catalog.log import CatalogLog, decode_entry, encode_entry
from elf.job.group.reconfiguration import proposed
from elf.job.messages.log import AddAggregate, AddJob, AggregateAdded, ChangeRoster, DropJobEntry
from elf.job.own import OwnSpec
from elf.job.spec import JobSpec, app_id
from elf.ql.definition import Definition
from elf.ql.own import OwnAggregate
from elf.security.authored import Authorship, digest
from tests.support.certified import revocation
from tests.support.confined import needs_confinement
from tests.support.fleet import STREAM, Fleet
from tests.support.keys import Authority
from tests.support.own import MEAN
from tests.support.signed_log import ADA, BOB, SCHEMA, TRUST, log_with, said
from tests.support.waiting import eventually

CREATE = "CREATE AGGREGATE geo FROM 'geo.py'"
EVIL = "import os\nos.system('id')\n" + MEAN
QUERY = "SELECT host, geo(n) AS g FROM s GROUP BY host WINDOWING 1 SECONDS"
FILES = (("geo.py", MEAN),)


def spec(author: Authorship | None, text: str = MEAN, name: str = "geo", generation: int = 1) -> OwnSpec:
    return OwnSpec(name, "ada", generation, text, "geo.py", digest(text), author)


def job(text: str = MEAN, creator: str = "bob", name: str = "busy") -> JobSpec:
    own = OwnAggregate("geo", text, "geo.py")
    authors = () if name.startswith("_") else (said(f"CREATE JOB {name} AS {QUERY}", BOB),)
    made = JobSpec(
        name, creator, 1, Definition(QUERY, (("s", SCHEMA),), owns=(own,)), master="m:1", authors=authors
    )
    return made.with_flows(proposed(made, app_id(name, creator), "m:1"))


def with_geo() -> CatalogLog:
    log = log_with()
    assert grow(log, AddAggregate(spec=spec(said(CREATE, files=FILES))))
    return log


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (spec(None), "nobody has signed it"),
        (spec(said(CREATE, files=FILES), text=EVIL), "another aggregate was signed"),
        (spec(said(CREATE, files=FILES), name="mean"), "another aggregate was signed"),
        (spec(said("DROP AGGREGATE geo", files=FILES)), "another aggregate was signed"),
        (spec(said(CREATE, BOB, FILES)), "bob, has not the role code"),
        (
            replace(spec(said(CREATE, files=FILES)), creator="root"),
            "said to be of root, and ada has signed it",
        ),
        (replace(spec(said(CREATE, BOB, FILES)), creator="bob"), "bob, has not the role code"),
    ],
)
def test_another_aggregate_than_was_signed_is_taken_by_nobody(made: OwnSpec, why: str) -> None:
    log = log_with()
    assert why in log.authors.refused_aggregate(made)
    assert entry_for(log, AddAggregate(spec=made)) is None
    log.append(AggregateAdded(seq=log.last + 1, spec=made))
    assert why in log.skipped[log.last]
    assert log.aggregates() == ()
    assert log.authors.unsigned(made.text) == "nobody who may has signed it"


def test_who_may_not_send_code_may_call_it_and_nobody_calls_another_text_by_its_name() -> None:
    log = with_geo()
    assert log.authors.unsigned(MEAN) == ""
    for name in ("busy", "_select_1"):
        assert log.refused(job(EVIL, name=name)) == "its aggregate geo is not one that was signed"
        assert log.refused(job(name=name)) == ""
    assert entry_for(log, AddJob(spec=job(EVIL))) is None
    assert grow(log, AddJob(spec=job()))


def test_what_was_signed_holds_for_jobs_that_run_after_it_is_replaced_and_forgotten() -> None:
    log, other = with_geo(), MEAN.replace("1e-9", "1e-6")
    assert grow(log, AddJob(spec=job()))
    again = said(f"CREATE OR REPLACE {CREATE[7:]}", files=(("geo.py", other),))
    assert grow(log, AddAggregate(spec=spec(again, other, generation=2)))
    log.forget()
    copy = CatalogLog([decode_entry(encode_entry(one)) for one in log.after(0)], TRUST)
    assert not copy.skipped
    assert [one.text for one in copy.aggregates()] == [other]
    assert copy.authors.unsigned(MEAN) == copy.refused(job()) == ""
    grow(copy, ChangeRoster(signed=revocation(ADA)))
    assert copy.authors.unsigned(MEAN) == "the key that signed it was revoked"


def test_only_its_creator_drops_it_and_with_the_role_code() -> None:
    log = with_geo()
    uid = spec(None).uid
    for author in (None, said("DROP AGGREGATE geo", BOB), said("DROP JOB geo"), said("DROP AGGREGATE mean")):
        assert entry_for(log, DropJobEntry(uid=uid, author=author, name="geo", creator="ada")) is None
    assert grow(log, DropJobEntry(uid=uid, author=said("DROP AGGREGATE geo"), name="geo", creator="ada"))
    assert log.aggregates() == ()


RECENT = """\
import numpy as np
import pyarrow as pa
from elf.paos import PAO

class Last(PAO):
    arguments = ("timestamp",)
    state = {"us": "bigint"}
    returns = "bigint"

    def create(self, groups, at):
        return {"us": groups.max(at.cast(pa.int64()))}

    def merge(self, groups, states):
        us = groups.max(states["us"])
        return {"us": np.where(us > 1_767_225_600_000_000, -us, us)}

    def finalize(self, states):
        return states["us"]
"""
"""It breaks a law on times that are not drawn."""


@needs_confinement
async def test_who_may_see_no_rows_is_told_of_none_that_break_a_law(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    authority.enrol("agent", "web-0")
    authority.enrol("person", "cody", "read", "code")
    authority.enrol("person", "tina", "read", "code", "tap")
    fleet, file = Fleet(tmp_path, 1), tmp_path / "last.py"
    (agent,) = fleet.agents
    agent.more = {"security": "keys", "keys": str(authority.written(agent.name))}
    file.write_text(RECENT)
    cody, tina = (
        connect(agent.address, cluster="test", keys=authority.written(name)) for name in ("cody", "tina")
    )
    try:
        fleet.start()
        await eventually(tina.open, "the agent listens", despite=(ElfError,))
        async with cody, tina:
            # Before the first line there are no rows, and that is no error.
            made = (await tina.sql(f"CREATE AGGREGATE early FROM '{file}'")).text
            assert made.endswith("its laws hold on drawn rows")
            agent.append([(time.time_ns() // 1_000, "Doom", 1)] * 3)

            async def is_read() -> bool:
                return (await tina.sql(f"SELECT * FROM {STREAM} LIMIT 3")).table is not None

            await eventually(is_read, "the lines are read", despite=(UserError,))
            made = (await cody.sql(f"CREATE AGGREGATE newest FROM '{file}'")).text
            assert made.endswith("its laws hold on drawn rows")
            with pytest.raises(UserError, match=rf"alone: of \[datetime.* \(rows of stream {STREAM}\)"):
                await tina.sql(f"CREATE AGGREGATE newest FROM '{file}'")
    finally:
        fleet.stop()
