"""The agent's SQLite file: names keep their contents, transactions are whole, kill -9 loses nothing said."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from agents.disk import groupstore
from agents.disk.durable import waits
from agents.disk.groupstore import RUN_RECORDS_MAX, ApplyRun, apply_run, in_runs
from agents.disk.store import Store, StoreError
from agents.disk.tables import SCHEMA_VERSION, STEPS
from elf.errors import ElfBug, UserError
from elf.job.commits import PaneCommit, WindowCommit
from elf.job.group.port import Apply, ForgetJobGroup, SummariseJobGroup
from elf.job.group.records import encode, state_of
from elf.job.snapshots import Sealed, SnapshotName
from elf.job.spec import END_OF_TIME, START_OF_TIME, group_uid

JOB = 32 * "0" + ".1"


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "agent.db" if request.param == "file" else ":memory:")
    yield store
    store.close()


def snapshot(start: int, end: int, part: int = 0, flow: str = "f", payload: bytes = b"rows") -> Sealed:
    return Sealed(flow, start, end, b"tally", payload, part)


def commit(start: int, end: int, revision: int = 0, payload: bytes = b"rows", flow: str = "f") -> PaneCommit:
    return PaneCommit(flow, start, end, revision, b"\x07", 3, b"tally", payload)


def window(start: int, end: int, revision: int = 0, provisional: bool = False) -> WindowCommit:
    return WindowCommit("j", start, end, revision, 1, provisional, b"status", b"rows", b"panes")


def test_facts_identity_and_incarnation_survive_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.db")
    agent, first = store.agent_id(), store.begin_incarnation()
    store.put("founder", b"here")
    store.put("founder", b"there")
    assert (store.get("founder"), store.get("nobody")) == (b"there", None)
    store.close()
    again = Store(tmp_path / "a.db")
    assert (again.agent_id(), again.begin_incarnation(), again.get("founder")) == (agent, first + 1, b"there")
    again.close()


def test_a_cut_and_its_snapshots_are_one_transaction(store: Store) -> None:
    store.save_checkpoint("s", b"cut 1", [snapshot(0, 5)])
    with pytest.raises(ElfBug):
        store.save_checkpoint(
            "s",
            b"cut 2",
            [snapshot(5, 9), snapshot(0, 5, payload=b"other")],
            forget=[SnapshotName("f", 7, 8)],
        )
    assert (store.load_checkpoint("s"), store.snapshots("f")) == (b"cut 1", [snapshot(0, 5)])
    store.save_checkpoint("s", b"cut 2", [snapshot(5, 9), snapshot(5, 9)], forget=[snapshot(0, 5).name])
    assert (store.load_checkpoint("s"), store.snapshots("f")) == (b"cut 2", [snapshot(5, 9)])
    assert store.load_checkpoint("t") is None


def test_snapshots_reach_from_the_start_to_the_end_of_time(store: Store) -> None:
    whole, late = snapshot(START_OF_TIME, END_OF_TIME), snapshot(-3, -2, part=1)
    store.save_checkpoint("s", b"", [late, whole, snapshot(0, 1, flow="g")])
    assert store.overlapping("f", 10, 11) == [whole]
    assert store.overlapping("f", -3, -2) == [whole, late]
    store.delete_snapshots([whole.name])
    assert (store.snapshots("f"), len(store.snapshots("g"))) == ([late], 1)
    store.delete_flow("g")
    assert (store.snapshots("f"), store.snapshots("g")) == ([late], [])


@settings(max_examples=40, deadline=None)
@given(
    ranges=st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 10), st.integers(0, 2)), max_size=12),
    start=st.integers(-25, 25),
    length=st.integers(1, 12),
)
def test_overlap_is_what_a_plain_filter_says(
    ranges: list[tuple[int, int, int]], start: int, length: int
) -> None:
    rows = {snapshot(at, at + size, part) for at, size, part in ranges}
    store = Store(":memory:")
    store.save_checkpoint("s", b"", list(rows))
    end = start + length
    expected = {row for row in rows if max(row.start, start) < min(row.end, end)}
    found = store.overlapping("f", start, end)
    store.close()
    assert set(found) == expected
    assert found == sorted(found, key=lambda row: row.name)


def test_a_root_never_says_two_things_about_one_revision_of_a_pane(store: Store) -> None:
    store.commit_panes(commit(0, 10), commit(10, 12))
    store.commit_panes(commit(0, 10))
    for other in (commit(0, 10, payload=b"x"), commit(9, 11), commit(3, 4), commit(-5, 40)):
        with pytest.raises(ElfBug):
            store.commit_panes(commit(12, 13), other)
    store.commit_panes(commit(3, 4, revision=1), commit(12, 14, flow="g"))
    assert store.pane_commits("f", 3, 4) == [commit(0, 10), commit(3, 4, revision=1)]
    assert store.pane_commits("f", 4, 13) == [commit(0, 10), commit(10, 12)]
    names = [(name.start, name.end, name.revision, name.members) for name in store.committed("f")]
    assert names == [(0, 10, 0, b"\x07"), (3, 4, 1, b"\x07"), (10, 12, 0, b"\x07")]
    store.prune_panes("f", 11)
    left = [row.start for row in store.pane_commits("f", START_OF_TIME, END_OF_TIME)]
    assert left == [10, 3], "the last commit stays, so that its number is not given again"
    assert len(store.committed("g")) == 1


def test_commits_are_numbered_and_a_copy_keeps_the_numbers(store: Store, tmp_path: Path) -> None:
    assert store.commit_panes(commit(0, 10), commit(10, 12)) == 2
    assert store.commit_panes(commit(0, 10)) == 1, "the same again is the same commit"
    assert store.commit_panes(commit(3, 4, revision=1)) == 3
    assert [row.seq for row in store.commits_after("f", 1, 0, 9)] == [2, 3]
    assert [row.seq for row in store.commits_after("f", 0, 10, 9)] == [2]
    copy = Store(tmp_path / "copy.sqlite")
    copy.commit_panes(*store.commits_after("f", 0, 10, 9))
    assert copy.last_seq("f") == 2
    copy.close()
    store.prune_panes("f", 20)
    assert store.commit_panes(commit(12, 13)) == 4
    store.save_flow("f", 7)
    assert store.flows() == {"f": 7}
    store.prune_panes("f", None)
    assert store.committed("f") == []
    store.delete_flow("f")
    assert store.flows() == {}


def test_the_tables_that_flows_join_are_kept_once(store: Store) -> None:
    store.save_checkpoint("s", b"cut 1", joined={"a": b"table a", "b": b"table b"})
    store.save_checkpoint("t", b"cut", joined={"a": b"table a"})
    store.save_checkpoint("s", b"cut 2")
    assert store.joined("s") == {"a": b"table a", "b": b"table b"}
    store.save_checkpoint("s", b"cut 3", joined={"b": b"table b"})
    assert (store.joined("s"), store.joined("t")) == ({"b": b"table b"}, {"a": b"table a"})


def test_jobs_and_windows(store: Store) -> None:
    store.save_job("j", b"record", "running")
    store.save_job("j", b"record", "dropping")
    store.save_job("k", b"other", "running")
    assert [(row.uid, row.state) for row in store.load_jobs()] == [("j", "dropping"), ("k", "running")]
    rows = [window(0, 10), window(5, 15), window(10, 20), window(5, 15, 1), window(10, 20, provisional=True)]
    store.commit_windows(*rows)
    store.commit_windows(rows[0])
    with pytest.raises(ElfBug):
        store.commit_windows(replace(rows[0], rows=b"other"))
    assert store.windows("j", 0, 10) == [rows[0], rows[1], rows[3]]
    assert store.windows("j", 15, 16)[0].last_end == 20
    assert store.last_windows("j", 3)[0] == rows[3]
    assert {row.provisional for row in store.last_windows("j", 2)} == {True, False}
    assert [row.seq for row in store.windows_after("j", 0)] == [1, 2, 3, 4, 5]
    assert [row.first_start for row in store.windows_after("j", 3)] == [5, 10]
    store.prune_windows("j", 15)
    assert [row.first_start for row in store.windows("j", 0, 99)] == [10, 10]
    store.drop_job("j")
    assert (store.windows("j", 0, 99), [row.uid for row in store.load_jobs()]) == ([], ["k"])


def test_the_state_of_a_master_is_bounded_however_many_flows_it_has(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each flow the newest panes; a job group of two was refused by its group, which stopped the agent."""
    monkeypatch.setattr(groupstore, "STATE_PANES_BYTES", 4_000)
    flows = tuple(24 * letter for letter in "abc")
    for flow in flows:
        store.save_flow(flow, 0)
        for pane in range(9):
            store.commit_panes(commit(pane, pane + 1, payload=b"x" * 400, flow=flow))
    asked = SummariseJobGroup(b"", 5, group_uid(JOB, 7), (*flows, "ended"), "founder")
    state = state_of(groupstore.summary(store, asked))
    assert not isinstance(state, str)
    whole = [(kept.flow, kept.start) for kept in state.panes if kept.payload]
    assert whole == [(flow, pane) for flow in flows for pane in (6, 7, 8)]
    assert [(kept.flow, kept.start) for kept in state.panes] == [
        (f, pane) for f in flows for pane in range(9)
    ]


def test_what_a_large_window_takes_of_a_state_panes_have_less(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groupstore, "STATE_PANES_BYTES", 4_000)
    monkeypatch.setattr(groupstore, "STATE_WINDOWS_BYTES", 1_000)
    flow = 24 * "f"
    store.save_flow(flow, 0)
    for pane in range(12):
        store.commit_panes(commit(pane, pane + 1, payload=b"x" * 400, flow=flow))
    leader = group_uid(JOB, 7)
    store.commit_windows(replace(window(0, 10), job=leader, rows=b"y" * 3_000))
    state = state_of(groupstore.summary(store, SummariseJobGroup(b"", 5, leader, (flow,), "founder")))
    assert not isinstance(state, str)
    assert [len(kept.rows) for kept in state.windows] == [3_000], "the newest is there"
    assert sum(len(kept.payload) for kept in state.panes) + 3_000 <= 5_000
    assert [kept.start for kept in state.panes] == [*range(12)], "older ones by name"


def test_commits_of_windows_are_numbered_by_job_without_gaps(store: Store) -> None:
    assert store.commit_windows(window(0, 10), window(10, 20)) == 2
    assert store.commit_windows(replace(window(0, 10), job="k")) == 1
    assert store.commit_windows(replace(window(20, 30), seq=0)) == 0, "there is no window in it"
    assert store.commit_windows(window(30, 40)) == 3
    assert store.commit_windows(window(10, 20)) == 2, "it is there already"
    assert [row.last_end for row in store.windows_after("j", 0)] == [10, 20, 40]
    store.prune_windows("j", 99)
    assert [row.last_end for row in store.windows("j", 0, 99)] == [40], "the next number is told by the last"
    assert store.last_windows_seq("j") == 3
    assert store.commit_windows(replace(window(50, 60), seq=7)) == 7, "as another member has it"
    assert (store.commit_windows(window(60, 70)), store.last_windows_seq("x")) == (8, 0)


def test_the_last_windows_are_found_without_a_look_at_all_others() -> None:
    """Each member looks for them with each commit of windows."""

    def steps(windows: int) -> int:
        store, found = Store(":memory:"), list[int]()
        store.commit_windows(*(window(n, n + 1) for n in range(windows)))
        with store._file.reading() as con:
            con.set_progress_handler(lambda: found.append(1), 1)
            assert [row.first_start for row in store.windows("j", windows - 2, windows)] == [
                windows - 2,
                windows - 1,
            ]
            con.set_progress_handler(None, 1)
        store.close()
        return len(found)

    assert steps(2_000) < 2 * steps(20)


def test_the_log_keeps_its_order_and_refuses_a_second_founder(store: Store) -> None:
    store.append_log([(2, b"b"), (1, b"a")])
    store.append_log([(2, b"b"), (3, b"c")])
    with pytest.raises(ElfBug):
        store.append_log([(4, b"d"), (3, b"C")])
    store.append_log([(4, b"d")], [(2, b"-"), (4, b"--")])
    assert store.load_log() == [(1, b"a"), (2, b"-"), (3, b"c"), (4, b"--")]


def test_the_log_waits_for_no_disk_and_is_durable_with_what_follows(tmp_path: Path) -> None:
    store = Store(tmp_path / "agent.db")
    before = waits()["state"]
    store.append_log([(1, b"a")])
    assert waits()["state"] == before
    store.put("fact", b"1")
    assert waits()["state"] == before + 1, "other writes wait as before"
    store.close()
    store = Store(tmp_path / "agent.db")
    assert store.load_log() == [(1, b"a")]
    store.close()


def test_many_threads_write_and_read_at_once(store: Store) -> None:
    failures: list[BaseException] = []

    def task(stream: str) -> None:
        try:
            for n in range(20):
                store.save_checkpoint(stream, str(n).encode(), [snapshot(n, n + 1, flow=stream)])
                assert store.load_checkpoint(stream) == str(n).encode()
                store.begin_incarnation()
        except BaseException as failure:  # the main thread reports it
            failures.append(failure)

    threads = [threading.Thread(target=task, args=(f"s{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.begin_incarnation() == 81
    assert [len(store.snapshots(f"s{i}")) for i in range(4)] == [20] * 4


def test_a_file_that_cannot_be_trusted_is_one_clear_error(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_bytes(b"this is no database, whatever its name says" * 40)
    foreign = tmp_path / "foreign.db"
    con = sqlite3.connect(foreign)
    con.execute("CREATE TABLE theirs (x)")
    con.commit()
    con.close()
    other = {version: tmp_path / f"{version}.db" for version in (1, 99)}
    for version, path in other.items():
        Store(path).close()
        con = sqlite3.connect(path)
        con.execute(f"PRAGMA user_version={version}")
        con.close()
    schemas = [(path, "another elf") for path in other.values()]
    for path, word in ((text, "database"), (foreign, "another program"), *schemas):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=word) as caught:
            Store(path)
        assert isinstance(caught.value, UserError)
        assert str(path) in str(caught.value)
        assert path.read_bytes() == before
    with pytest.raises(StoreError):
        Store(tmp_path / "no such folder" / "a.db")


def test_a_file_of_an_older_schema_is_brought_to_the_present_one(tmp_path: Path) -> None:
    """As far back as there are steps; what it holds stays."""
    path, tables = tmp_path / "a.db", "SELECT name, sql FROM sqlite_master ORDER BY name"
    store = Store(path)
    store.put("agent_id", b"a")
    store.close()
    con = sqlite3.connect(path)
    wanted = con.execute(tables).fetchall()
    for name in ("kept_tables", "table_schemas", "table_rows", "costs", "postponed"):
        con.execute(f"DROP TABLE {name}")
    con.execute(f"PRAGMA user_version={min(STEPS)}")
    con.close()
    store = Store(path)
    assert store.get("agent_id") == b"a"
    store.close()
    con = sqlite3.connect(path)
    assert con.execute(tables).fetchall() == wanted
    assert con.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    con.close()


def test_damage_in_the_middle_is_found_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = Store(path)
    store.save_checkpoint("s", b"c", [snapshot(n, n + 1, payload=bytes(3000)) for n in range(200)])
    store.close()
    data = bytearray(path.read_bytes())
    data[8192:40960] = b"\xff" * 32768
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"is damaged \(.*\): put a copy of it back, or move it away"):
        Store(path)


WRITER = """
import sys
from elf.job.snapshots import Sealed
from agents.disk.store import Store
store = Store(sys.argv[1])
n = int(store.load_checkpoint("s") or b"0")
while True:
    n += 1
    rows = [Sealed("f", n, n + 1, b"", bytes(5000), part) for part in (0, 1)]
    store.save_checkpoint("s", str(n).encode(), rows)
    print(n, flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_said_and_leaves_nothing_half(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for kills in (3, 25):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(kills)][-1]
        os.kill(child.pid, signal.SIGKILL)
        said = max([said, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdout.close()
        store = Store(path)
        checkpoint = int(store.load_checkpoint("s") or b"0")
        names = [row.name[1:] for row in store.snapshots("f")]
        store.close()
        assert checkpoint in (said, said + 1)
        assert names == [(n, n + 1, part) for n in range(1, checkpoint + 1) for part in (0, 1)]


def test_what_is_written_together_is_one_transaction(store: Store) -> None:
    def write(*rows: WindowCommit) -> list[int]:
        with store.unsynced(), store.together():
            store.put("fact", b"1")
            with store.unsynced():
                return [store.commit_windows(row) for row in rows]

    with pytest.raises(ElfBug):
        write(window(0, 5), replace(window(0, 5), rows=b"others"))
    assert store.windows("j", 0, 9) == []
    assert store.get("fact") is None
    assert write(window(0, 5), window(5, 9)) == [1, 2]
    assert store.get("fact") == b"1"
    assert len(store.windows("j", 0, 9)) == 2


def test_records_that_follow_each_other_are_written_in_runs(store: Store) -> None:
    rows = [replace(window(at, at + 1), job=JOB) for at in range(RUN_RECORDS_MAX + 1)]
    applies = [Apply(bytes(16), encode(row)) for row in rows]
    other = ForgetJobGroup("of another job", ())
    runs = list(in_runs([other, *applies, other, applies[0]]))
    assert [len(run.effects) if isinstance(run, ApplyRun) else run for run in runs] == [
        other,
        RUN_RECORDS_MAX,
        1,
        other,
        1,
    ]
    done = [one for run in runs if isinstance(run, ApplyRun) for one in apply_run(store, run)]
    assert [one.record for one in done] == [one.record for one in (*applies, applies[0])]
    assert [one.seqs for one in done] == [*((n + 1,) for n in range(len(rows))), (1,)], (
        "the first word under a name stays"
    )
