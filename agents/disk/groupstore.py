"""The records of replicated job groups in an agent's store: what a group has committed, every member writes
here.

A commit has a name, and the first word under it stays; records that come again change nothing. So a restart,
which hears of all records since the last state again, comes to what was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final, TypeVar, cast

import msgspec

from agents.disk.store import Store
from elf.errors import ElfBug
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.effects import SaveJob
from elf.job.group import records as log
from elf.job.group.port import (
    Applied,
    Apply,
    ForgetJobGroup,
    InstallJobGroup,
    JobGroupEvent,
    JobGroupLoaded,
    LoadJobGroup,
    StoredJob,
    StoredMaster,
    Summarised,
    SummariseJobGroup,
)
from elf.job.output import OutputKept
from elf.job.rollup.flowroots import StoredPanes
from elf.job.spec import END_OF_TIME, START_OF_TIME, JobSpec, VersionRecord, is_range
from elf.job.tables import ShardRound, ShardRows, TableKept, TableRound
from elf.planning.costs import JobCosts

T = TypeVar("T")
_output_of: Final = msgspec.msgpack.Decoder(OutputKept).decode
_costs_of: Final = msgspec.msgpack.Decoder(JobCosts).decode

RUN_RECORDS_MAX: Final = 64
"""In one transaction: stream tasks wait for it with their checkpoints."""
STATE_PANES_BYTES: Final = 40 << 20
"""Rows of panes in a state, of all its flows that run, which share it evenly. Beyond it a member that begins
with the state does not have the oldest."""
STATE_WINDOWS_BYTES: Final = 8 << 20
STATE_WINDOWS: Final = 500
"""The last windows in a state: that many and that large at most, but for the newest, which is there. What it
takes beyond that panes have less."""


class _JobRecord(msgspec.Struct, frozen=True, array_like=True):
    """As it is stored."""

    spec: JobSpec
    first_pane: int | None
    versions: tuple[VersionRecord, ...]


def job_record(job: SaveJob | log.JobKept) -> bytes:
    """What the store keeps of a job."""
    return msgspec.msgpack.encode(_JobRecord(job.spec, job.first_pane, job.versions))


def apply(store: Store, record: bytes) -> tuple[int, ...]:
    """Write a record; returns the numbers of its commits of panes and of windows."""
    fact = log.record_of(record)
    with store.unsynced():
        match fact:
            case str():
                raise ElfBug(f"a record that is none: {fact}")  # its machine keeps such from us
            case log.JobKept():
                store.save_job(fact.spec.uid, job_record(fact), fact.state)
            case log.FlowKept():
                store.save_flow(fact.flow, fact.first_pane)
            case PaneCommit():
                return (_keep_panes(store, fact),)
            case WindowCommit():
                return (_keep_windows(store, fact),)
            case log.JointCommit():
                return (_keep_panes(store, fact.panes), *(_keep_windows(store, one) for one in fact.windows))
            case log.PanesDropped():
                store.prune_panes(fact.flow, fact.below)
            case log.WindowsDropped():
                store.prune_windows(fact.job, fact.below_us)
            case log.MasterKept():
                if is_range(fact.uid):
                    store.bootstrap_master(fact.uid, b"")  # the catalog log has the job
                store.save_master(fact.uid, fact.number, fact.checkpoint)
            case OutputKept(over=True):
                store.drop_output(fact.job, fact.output)
            case OutputKept():
                store.save_output(fact.job, fact.output, fact.number, log.encode(fact))
            case JobCosts():
                store.save_costs(fact.job, record)
            case TableKept(over=True):
                store.tables.end(fact.table)
            case TableKept():
                last = next(iter(store.last_windows(fact.job, 1)), None)
                store.tables.begin(fact, last, store.last_windows_seq(fact.job))
            case TableRound():
                return (int(store.tables.copy(fact)),)
            case ShardRows():
                store.tables.put(fact)
            case ShardRound():
                store.tables.join(fact)
    return ()


@dataclass(frozen=True)
class ApplyRun:
    """Records that come one after the other, of whichever groups."""

    effects: tuple[Apply, ...]


def in_runs(effects: Sequence[T], records_max: int = RUN_RECORDS_MAX) -> Iterator[T | ApplyRun]:
    """The same, in order, records that follow each other in runs of bounded length."""
    for is_record, some in groupby(effects, lambda effect: isinstance(effect, Apply)):
        while is_record and (run := tuple(islice(some, records_max))):
            yield ApplyRun(cast(tuple[Apply, ...], run))
        yield from some


def apply_run(store: Store, run: ApplyRun) -> list[Applied]:
    """Write them, in one transaction, but for those that say otherwise what is committed already."""
    with store.unsynced(), store.together():
        return [_applied(store, one) for one in run.effects]


def _applied(store: Store, effect: Apply) -> Applied:
    """A second word under a name changes nothing, whoever has said it: all members have the first one, and
    skip the second (protocol 5.9). Where that one is our own, as the leader, we are in no known state."""
    try:
        with store.whole():
            return Applied(effect.group, effect.record, apply(store, effect.record), effect.commit)
    except ElfBug as error:
        if effect.commit is not None:
            raise
        return Applied(effect.group, effect.record, why=str(error))


def _keep_panes(store: Store, row: PaneCommit) -> int:
    """Of a bare word on a commit and the commit itself, whichever comes first, the commit stays."""
    known = store.committed_as(*row.name)
    if known is not None and known.members and not row.members:
        return known.seq
    again = known is not None and not known.members and bool(row.members)
    return store.commit_panes(row, again=again)


def _keep_windows(store: Store, row: WindowCommit) -> int:
    near = store.windows(row.job, row.first_start - 1, row.last_end + 1)
    known = next((other for other in near if other.name == row.name), None)
    number = store.commit_windows(row) if known is None else known.seq
    store.tables.take(row, number)
    return number


def install(store: Store, effect: InstallJobGroup) -> None:
    """Write a whole state."""
    state = log.state_of(effect.state)
    if isinstance(state, str):
        raise ElfBug(f"a state that is none: {state}")  # its machine keeps such from us
    job = (state.job,) if isinstance(state.job, log.JobKept) else ()
    if isinstance(state.job, log.ProgramKept):
        with store.unsynced():
            store.bootstrap_master(state.uid, log.encode(state.job))
    master = () if state.master is None else (state.master,)
    for table in state.tables:  # they have the windows of the state already
        store.tables.install(table)
    costs = () if state.costs is None else (state.costs,)
    for fact in (*job, *state.flows, *state.panes, *state.windows, *state.outputs, *costs, *master):
        apply(store, log.encode(fact))


def summary(store: Store, effect: SummariseJobGroup) -> bytes:
    """The state of a job group."""
    if (row := store.master(effect.uid)) is not None:
        last = log.MasterKept(effect.uid, row.number, row.checkpoint) if row.number else None
        ranged = is_range(effect.uid)
        of = log.RangeKept(effect.uid, effect.founder) if ranged else log.program_of(row.bootstrapped)
        return log.encode(log.JobGroupState(of, master=last))
    job = _kept_job(store, effect.uid, effect.founder)
    firsts = store.flows()
    flows = [log.FlowKept(uid, first) for uid in effect.flows if (first := firsts.get(uid)) is not None]
    windows = _fitting(store.last_windows(effect.uid, STATE_WINDOWS))
    numbers = [row.seq for row in windows]  # the next one is given after the last, which may be a revision
    windows += _fitting(store.windows_after(effect.uid, max(numbers, default=0)))
    over = max(sum(map(_size, windows)) - STATE_WINDOWS_BYTES, 0)  # the newest may be larger than that
    share = max(STATE_PANES_BYTES - over, 0) // max(len(flows), 1)
    panes = [row for uid in effect.flows for row in newest(store, uid, share)]
    return log.encode(
        log.JobGroupState(
            job,
            tuple(flows),
            tuple(panes),
            tuple(windows),
            _outputs(store, effect.uid),
            tables=store.tables.states(effect.uid),
            costs=_costs(store, effect.uid),
        )
    )


def _outputs(store: Store, uid: str) -> tuple[OutputKept, ...]:
    return tuple(map(_output_of, store.outputs(uid)))


def _costs(store: Store, uid: str) -> JobCosts | None:
    learned = store.costs(uid)
    return None if learned is None else _costs_of(learned)


def _kept_job(store: Store, uid: str, founder: str) -> log.JobKept | log.RangeKept:
    if is_range(uid):
        return log.RangeKept(uid, founder)
    row = store.job(uid)
    if row is None:
        raise ElfBug(f"the job group of {uid} has no record of the job")
    kept = msgspec.msgpack.decode(row.record, type=_JobRecord)
    return log.JobKept(kept.spec, row.state, kept.first_pane, kept.versions)


def newest(store: Store, uid: str, bytes_max: int) -> list[PaneCommit]:
    """All commits of a flow in their order; the older ones without contents if they are too large."""
    found: list[PaneCommit] = []
    size = 0
    rows = sorted(store.pane_commits(uid, START_OF_TIME, END_OF_TIME), key=lambda row: row.seq)
    parts, raw = store.parts_of(uid), store.raw_of(uid, START_OF_TIME, END_OF_TIME)
    for row in reversed(rows):
        name = row.start, row.revision
        row = msgspec.structs.replace(row, parts=parts.get(name, b""), raw=raw.get(name, b""))
        size += len(row.counters) + len(row.payload) + len(row.raw)
        found.append(row.bare if size > bytes_max else row)
    return found[::-1]


def _fitting(rows: Sequence[WindowCommit]) -> list[WindowCommit]:
    found: list[WindowCommit] = []
    size = 0
    for row in reversed(rows):
        size += _size(row)
        if found and size > STATE_WINDOWS_BYTES:
            break
        found.append(row)
    return found[::-1]


def _size(row: WindowCommit) -> int:
    return len(row.status) + len(row.rows) + len(row.panes_used)


def load(store: Store, effect: LoadJobGroup) -> JobGroupLoaded:
    """A job group as another leader, or another life, left it."""
    if (kept := store.master(effect.uid)) is not None:
        spec = None if is_range(effect.uid) else log.program_of(kept.bootstrapped).spec
        master = StoredMaster(spec, kept.number, kept.checkpoint)
        return JobGroupLoaded(effect.group, effect.term, None, {}, master)
    row = store.job(effect.uid)
    job = None if row is None else stored_job(store, row.record, row.state)
    flows = {uid: stored_panes(store, uid, first) for uid, first in _firsts(store, effect.flows)}
    tables = store.tables.stored(effect.uid) if is_range(effect.uid) else ()
    return JobGroupLoaded(effect.group, effect.term, job, flows, tables=tables)


def _firsts(store: Store, flows: Iterable[str]) -> list[tuple[str, int | None]]:
    known = store.flows()
    return [(uid, known.get(uid)) for uid in flows]


def stored_job(store: Store, record: bytes, state: str) -> StoredJob:
    """A job from its row in the store."""
    kept = msgspec.msgpack.decode(record, type=_JobRecord)
    uid = kept.spec.uid
    published, outputs = store.last_windows_seq(uid), _outputs(store, uid)
    tables = store.tables.stored(uid)
    assembled, costs = store.assembled(uid), _costs(store, uid)
    return StoredJob(kept.spec, state, kept.versions, assembled, published, outputs, tables, costs)


def stored_jobs(store: Store) -> tuple[StoredJob, ...]:
    """The jobs whose job group, or a member of it, is or was here."""
    return tuple(stored_job(store, row.record, row.state) for row in store.load_jobs())


def stored_flows(store: Store) -> dict[str, StoredPanes]:
    """Every flow of which something is kept."""
    return {uid: stored_panes(store, uid, first) for uid, first in store.flows().items()}


def stored_panes(store: Store, uid: str, first: int | None) -> StoredPanes:
    """A flow's commits, without their contents."""
    found = store.committed(uid)
    commits = tuple((c.start, c.end, c.revision, c.members) for c in found)
    known = max((c.roster_version for c in found), default=0)
    return StoredPanes(first, commits, store.last_seq(uid), store.parts_of(uid), known)


def perform(
    store: Store, effect: InstallJobGroup | SummariseJobGroup | LoadJobGroup | ForgetJobGroup
) -> JobGroupEvent | None:
    """Do what must be done in order; what comes of it, if anything does."""
    match effect:
        case InstallJobGroup():
            install(store, effect)
        case SummariseJobGroup():
            return Summarised(effect.group, effect.index, summary(store, effect))
        case LoadJobGroup():
            return load(store, effect)
        case ForgetJobGroup():
            store.drop_job(effect.uid, effect.flows)
    return None
