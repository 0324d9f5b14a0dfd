"""The commands of the queue, as far as they need no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elf.cli import offline_queue
from elf.cli.main import app
from elf.errors import UserError
from spark_backend.queue.serve import alone, tasks_of
from spark_backend.queue.store import Spec, Store
from tests.support.offline import clicks, store_clicks


def call(*args: str) -> int:
    return int(app(["offline", *args], standalone_mode=False) or 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A queue with two runs."""
    folder = tmp_path / "queue"
    store = Store(folder, create=True)
    spec, out = Spec("SELECT COUNT(*) AS n FROM clicks", ("/archive",)), Path("/tmp/n.csv")
    for name, production in (("study", False), ("nightly", True)):
        store.submit(name, spec, out, owner="me", production=production, deadline_ms=None, now_ms=1_000)
    store.update(1, state="running", progress=0.25, remaining_ms=90_000, containers=2)
    store.close()
    return folder


def test_the_queue_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("queue", "--queue", str(folder), "--json") == 0
    study, nightly = map(json.loads, capsys.readouterr().out.splitlines())
    assert study["run"] == "study"
    assert (study["state"], study["progress"], study["remaining_s"]) == ("running", 0.25, 90.0)
    assert (nightly["priority"], nightly["state"]) == ("production", "waiting")
    assert call("queue", "--queue", str(folder)) == 0
    shown = capsys.readouterr()
    assert "25%" in shown.out
    assert "1m30s" in shown.out
    assert "nobody serves" in shown.err


def test_a_run_that_is_over_can_be_waited_for_and_asked_for_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(folder)
    store.update(1, state="done")
    store.update(2, state="failed", why="a file is gone")
    assert call("wait", "study", "--queue", str(folder)) == 0
    assert call("wait", "study", "nightly", "--queue", str(folder)) == 1
    assert "nightly has failed: a file is gone" in capsys.readouterr().err
    with pytest.raises(UserError, match="study is done: there is nothing to cancel"):
        call("cancel", "study", "--queue", str(folder))
    assert call("resume", "nightly", "--queue", str(folder)) == 0
    assert store.run("nightly").asked == "resume"


def test_what_is_asked_for_while_the_daemon_does_the_last_thing_is_not_lost(folder: Path) -> None:
    store = Store(folder)
    store.ask("study", "suspend")
    asked = store.run("study")
    store.ask("study", "resume")
    store.answer(asked, state="suspended")
    assert (store.run("study").state, store.run("study").asked) == ("suspended", "resume")
    store.answer(store.run("study"), state="running")
    assert (store.run("study").state, store.run("study").asked) == ("running", "")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["queue"], "there is no queue in"),
        (["queue", "--json", "--watch"], "--json or --watch, not both"),
        (["suspend", "x"], "there is no queue in"),
        (["submit", "-q", "SELECT 1", "--out", "n.csv"], "give the archive to read"),
        (["submit", "-q", "SELECT 1", "--out", "n.csv", "--archive", "/a", "--name", "a b"], "--name a b"),
        (
            ["submit", "-q", "SELECT 1", "--out", "n.csv", "--archive", "/a", "--name", "n-20260328T0300"],
            "only runs of schedules are called after a moment",
        ),
        (["submit", "-q", "SELECT 1", "--out", "checks/n.csv", "--archive", "/a"], "checks is no folder"),
        (
            ["submit", "-q", "SELECT 1", "--out", "n.csv", "--archive", "/a", "--deadline", "soon"],
            "such as 90s",
        ),
        (["submit", "-q", "SELECT 1", "--out", "n.txt", "--archive", "/a"], "its name says the form"),
        (["submit", "-q", "SELECT 1", "--out", "n.csv", "--archive", "/none"], "/none"),
        (["serve", "--evict-runs", "mdf", "--select", "llf"], "mdf goes with edf"),
        (["serve", "--conf", "x=1"], "--conf wants spark"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, args: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as said:
        call(*args, "--queue", str(tmp_path / "queue"))
    assert why in str(said.value)
    assert not (tmp_path / "queue").exists()


def test_who_is_not_in_the_queue_is_named(folder: Path) -> None:
    with pytest.raises(UserError, match="there is no run other in"):
        call("cancel", "other", "--queue", str(folder))


def test_there_is_one_daemon_a_queue(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with alone(folder):
        assert call("suspend", "study", "--queue", str(folder)) == 0
        assert not capsys.readouterr().err
        with pytest.raises(UserError, match="is served by process"), alone(folder):
            pass
    with alone(folder):
        pass


def test_tasks_are_some_for_each_container_and_none_is_long() -> None:
    inputs = [bytes([number]) for number in range(100)]
    for slots in (1, 2, 8, 64):
        tasks = tasks_of(inputs, slots)
        assert [one for task in tasks for one in task] == inputs
        assert max(map(len, tasks)) <= 16
        assert len(tasks) >= min(len(inputs), 2 * slots)


def test_the_queue_of_a_user_is_where_state_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert offline_queue.folder_of(None) == tmp_path / "elf" / "queue"
    assert offline_queue.folder_of(Path("/q")) == Path("/q")


def test_a_query_is_planned_when_it_is_submitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_clicks(tmp_path / "archive", clicks(40, 1))
    queue, out = ("--queue", str(tmp_path / "queue")), ("--out", str(tmp_path / "n.csv"))
    over = ("--archive", str(tmp_path / "archive"))
    with pytest.raises(UserError, match='unknown column "nothing"'):
        call("submit", "-q", "SELECT SUM(nothing) AS n FROM clicks", *over, *out, *queue)
    assert not (tmp_path / "queue").exists()
    text = "SELECT SUM(clicks) AS n FROM clicks"
    assert (
        call("submit", "-q", text, *over, *out, *queue, "--priority", "production", "--deadline", "10m") == 0
    )
    name = capsys.readouterr().out.strip()
    store = Store(tmp_path / "queue")
    [run] = store.runs()
    assert run.name == name
    assert run.production
    assert run.deadline_ms is not None
    assert 0 < run.deadline_ms - run.submitted_ms <= 600_000
    assert store.spec(run.number).schemas["clicks"].find("clicks") is not None
    with pytest.raises(UserError, match=f"there is a run {name} already"):
        call("submit", "-q", text, *over, *out, *queue, "--name", name)
