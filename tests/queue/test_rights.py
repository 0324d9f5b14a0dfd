"""Who may have which runs: owners, quotas, and signatures with roles."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from elf.cli.main import app
from elf.errors import UserError
from elf.security.folder import load
from elf.security.roles import Role
from spark_backend.queue.rights import Author, Quotas, Rights, roles_of, signed_run, terms
from spark_backend.queue.schedules import Asked, Schedule, Scheduler, Schedules
from spark_backend.queue.store import Check, Run, Spec, Store
from tests.support.keys import Authority
from tests.support.offline import clicks, store_clicks
from tests.support.queued import Queue

SPEC = Spec("SELECT COUNT(*) AS n FROM clicks", ("/a",))
MIDNIGHT = int(datetime(2026, 3, 28, tzinfo=UTC).timestamp() * 1_000)
DAY = 24 * 3_600_000


def call(*args: str) -> int:
    return int(app(["offline", *args], standalone_mode=False) or 0)


class Guarded:
    """A signed queue of cluster test: ada may write, bob is an admin, eve reads, old's key has expired."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "keys")
        self.authority.enrol("agent", "web-1")
        self.authority.enrol("person", "ada", "read", "write")
        self.authority.enrol("person", "bob", "admin")
        self.authority.enrol("person", "eve", "read")
        self.authority.enrol("person", "old", "admin", lasts=-10)
        self.authority.enrol("person", "gone", "admin")
        self.store = Store(folder / "queue", create=True)
        self.rights = Rights.fix(self.store, Quotas(), load(self.authority.written("web-1")))

    def author(self, name: str) -> Author:
        return Author(name, load(self.authority.written(name)))

    def submit(
        self, name: str, by: Author, spec: Spec = SPEC, *, owner: str = "", said: bytes | None = None
    ) -> Run:
        whole = signed_run(name, spec, "/n.csv", False, None)
        return self.store.submit(
            name, spec, Path("/n.csv"), owner=owner or by.name, production=False, deadline_ms=None, now_ms=0,
            said=by.say("submit", *whole) if said is None else said,
        )  # fmt: skip

    def refused(self, run: Run, spec: Spec = SPEC) -> str:
        return self.rights.refused(run, spec, time.time())


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def test_who_has_signed_and_may(guarded: Guarded) -> None:
    ada, bob = guarded.author("ada"), guarded.author("bob")
    assert guarded.refused(guarded.submit("a", ada)) == ""
    assert guarded.refused(guarded.submit("b", bob)) == ""
    assert guarded.refused(guarded.submit("c", bob, owner="ada")) == ""  # an admin, in her name


def test_who_has_not_or_may_not(guarded: Guarded) -> None:
    ada = guarded.author("ada")
    assert guarded.refused(guarded.submit("n", Author("ada"))) == "no person of cluster test has signed it"
    assert "role write" in guarded.refused(guarded.submit("e", guarded.author("eve")))
    assert "has expired" in guarded.refused(guarded.submit("o", guarded.author("old")))
    assert "ada has signed it" in guarded.refused(guarded.submit("x", ada, owner="bob"))
    another = Authority(guarded.authority.folder / "another")
    another.enrol("person", "ada", "admin")
    foreign = Author("ada", load(another.written("ada")))
    assert guarded.refused(guarded.submit("f", foreign)) != ""
    said = guarded.submit("s", ada).said
    assert guarded.refused(guarded.submit("t", ada, said=said)) == "its signature is of something else"
    assert (
        guarded.refused(guarded.submit("u", ada, said=b"\xc1")) == "no person of cluster test has signed it"
    )
    other = Spec("SELECT SUM(clicks) AS n FROM clicks", ("/a",))
    assert guarded.refused(guarded.store.run("s"), other) == "its signature is of something else"


def test_who_was_revoked(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    gone = guarded.author("gone")
    guarded.authority.revoke("gone")
    guarded.rights = Rights.fix(guarded.store, Quotas(), load(guarded.authority.written("web-1")))
    assert "revoked" in guarded.refused(guarded.submit("g", gone))


@pytest.mark.parametrize(
    ("spec", "role"),
    [
        (Spec("SELECT _line, COUNT(*) AS n FROM clicks GROUP BY _line", ("/a",)), "tap"),
        (Spec("SELECT own(clicks) AS n FROM clicks", ("/a",), texts={"own.py": "…"}), "code"),
    ],
)
def test_what_needs_more(guarded: Guarded, spec: Spec, role: Role) -> None:
    ada, bob = guarded.author("ada"), guarded.author("bob")
    assert f"role {role}" in guarded.refused(guarded.submit("a", ada, spec), spec)
    assert guarded.refused(guarded.submit("b", bob, spec), spec) == ""
    assert role not in roles_of("", (), check=True)
    check = Spec("", (), check=Check("busy", "127.0.0.1:7071", "test"))
    assert guarded.refused(guarded.submit("c", ada, check), check) == ""


def test_a_run_of_a_schedule_has_its_signature(guarded: Guarded) -> None:
    schedules, ada = Schedules(guarded.store), guarded.author("ada")
    made = Schedule("n", "ada", "@daily", "UTC", Asked(SPEC.text, SPEC.archives), "/n.csv", True, None, 1)
    for name, cron, wrong in (
        ("n-20260328T0000", "@daily", ""),
        ("n-20260329T0000", "* * * * *", "its signature is of something else"),
    ):
        with guarded.store.writing() as con:
            con.execute("DELETE FROM schedules")
            con.execute(
                "INSERT INTO schedules (name, owner, cron, zone, asked, out, production, deadline_ms, "
                "late_ms, next_ms) VALUES ('n', 'ada', ?, 'UTC', ?, '/n.csv', 1, NULL, 1, 0)",
                (cron, msgspec.msgpack.encode(made.asked)),
            )
        run = guarded.store.submit(
            name, SPEC, Path("/n.csv"), owner="ada", production=True, deadline_ms=None, now_ms=0,
            schedule="n", said=ada.say("schedule", *terms(made)),
        )  # fmt: skip
        assert guarded.refused(run) == wrong
    assert schedules.named("n").cron == "* * * * *"


OTHER = Spec("SELECT SUM(clicks) AS n FROM clicks", ("/a",))
CHECK = Spec(SPEC.text, SPEC.archives, check=Check("busy", "127.0.0.1:7071", "test"))


@pytest.mark.parametrize(
    ("name", "spec", "out", "production", "deadline_ms", "ours"),
    [
        ("n-20260328T0000", SPEC, "/n-28.csv", True, MIDNIGHT + 5, True),
        ("n-20260328T0000", replace(SPEC, span=(0, 1)), "/n-28.csv", True, MIDNIGHT + 5, True),
        ("n-20260328T0000", OTHER, "/n-28.csv", True, MIDNIGHT + 5, False),
        ("n-20260328T0000", replace(SPEC, archives=("/b",)), "/n-28.csv", True, MIDNIGHT + 5, False),
        ("n-20260328T0000", replace(SPEC, tables={"t.csv": b"1"}), "/n-28.csv", True, MIDNIGHT + 5, False),
        ("n-20260328T0000", replace(SPEC, texts={"f.py": "1"}), "/n-28.csv", True, MIDNIGHT + 5, False),
        ("n-20260328T0000", CHECK, "/n-28.csv", True, MIDNIGHT + 5, False),
        ("n-20260328T0000", SPEC, "/n-29.csv", True, MIDNIGHT + 5, False),
        ("n-20260328T0000", SPEC, "/n-28.csv", False, MIDNIGHT + 5, False),
        ("n-20260328T0000", SPEC, "/n-28.csv", True, None, False),
        ("m-20260328T0000", SPEC, "/n-28.csv", True, MIDNIGHT + 5, False),
        ("n-99991399T0000", SPEC, "/n-28.csv", True, MIDNIGHT + 5, False),
    ],
)
def test_a_run_of_a_schedule_is_what_the_schedule_asks_for(
    guarded: Guarded, name: str, spec: Spec, out: str, production: bool, deadline_ms: int | None, ours: bool
) -> None:
    made = Schedule("n", "bob", "@daily", "UTC", Asked(SPEC.text, SPEC.archives), "/n-%d.csv", True, 5, 1)
    said = guarded.author("bob").say("schedule", *terms(made))
    Schedules(guarded.store).add(dataclasses.replace(made, said=said), 0)
    run = guarded.store.submit(
        name, spec, Path(out), owner="bob", production=production, deadline_ms=deadline_ms, now_ms=0,
        schedule="n", said=said,
    )  # fmt: skip
    assert guarded.refused(run, spec) == ("" if ours else "it is not what schedule n asks for")


@pytest.mark.parametrize("signed", [True, False])
def test_nothing_is_read_for_a_schedule_that_nobody_has_signed(guarded: Guarded, signed: bool) -> None:
    made = Schedule("n", "ada", "@daily", "UTC", Asked(SPEC.text, SPEC.archives), "/n.csv", True, None, DAY)
    by = guarded.author("ada") if signed else Author("ada")
    made = dataclasses.replace(made, said=by.say("schedule", *terms(made)))
    now_ms = round(time.time() * 1e3)
    [next_ms] = made.times.between(now_ms - DAY, now_ms)
    Schedules(guarded.store).add(made, next_ms - 1)
    read: list[Asked] = []

    def specify(asked: Asked, at_ms: int) -> Spec:
        read.append(asked)
        return SPEC

    Scheduler(guarded.store, specify, lambda line: None, guarded.rights.refused_schedule).tick(now_ms)
    [run] = guarded.store.runs()
    assert len(read) == signed
    assert (run.state, run.why) == (
        ("waiting", "") if signed else ("failed", "no person of cluster test has signed it")
    )


def test_a_run_that_seems_to_have_begun_is_asked_for_its_signature(
    guarded: Guarded, tmp_path: Path, quick_spark: SparkSession
) -> None:
    run = guarded.submit("a", Author("ada"))
    guarded.store.plan(run.number, [[b""]])
    queue = Queue(tmp_path / "queue", quick_spark, now_ms=round(time.time() * 1e3), rights=guarded.rights)
    queue.tick()
    assert (queue.run("a").state, queue.run("a").why) == ("failed", "no person of cluster test has signed it")
    queue.daemon.close()


def test_who_changes_a_run(guarded: Guarded) -> None:
    ada, bob, eve = map(guarded.author, ("ada", "bob", "eve"))
    run = guarded.submit("a", ada)
    for by, may in ((ada, True), (bob, True), (eve, False), (Author("ada"), False)):
        guarded.store.ask("a", "suspend", by.say("suspend", run.number, run.name))
        assert (guarded.rights.refused_change(guarded.store.run("a"), time.time()) == "") is may
    guarded.store.ask("a", "cancel", ada.say("suspend", run.number, run.name))
    assert guarded.rights.refused_change(guarded.store.run("a"), time.time())


def test_commands_say_at_once_what_the_daemon_would(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store_clicks(tmp_path / "archive", clicks(40, 1))
    queue = ("--queue", str(tmp_path / "queue"))
    words = (
        "-q",
        SPEC.text,
        "--archive",
        str(tmp_path / "archive"),
        "--out",
        str(tmp_path / "n.csv"),
        *queue,
    )
    monkeypatch.setenv("ELF_KEYS", str(tmp_path / "none"))
    with pytest.raises(UserError, match="persons of cluster test have signed: --keys names"):
        call("submit", *words)
    monkeypatch.setenv("ELF_KEYS", str(guarded.authority.written("eve")))
    with pytest.raises(UserError, match=r"needs the role write, which eve does not have \(roles: read\)"):
        call("submit", *words)
    monkeypatch.setenv("ELF_KEYS", str(guarded.authority.written("web-1")))
    with pytest.raises(UserError, match="keys of the agent web-1"):
        call("submit", *words)
    monkeypatch.setenv("ELF_KEYS", str(guarded.authority.written("ada")))
    assert call("submit", *words, "--name", "hers") == 0
    run = guarded.store.run("hers")
    assert run.owner == "ada"
    assert guarded.refused(run, guarded.store.spec(run.number)) == ""
    monkeypatch.setenv("ELF_KEYS", str(guarded.authority.written("bob")))
    assert call("cancel", "hers", *queue) == 0
    assert guarded.rights.refused_change(guarded.store.run("hers"), time.time()) == ""


def test_the_owner_alone_changes_a_run_and_quotas_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_clicks(tmp_path / "archive", clicks(40, 1))
    queue = ("--queue", str(tmp_path / "queue"))
    words = (
        "-q",
        SPEC.text,
        "--archive",
        str(tmp_path / "archive"),
        "--out",
        str(tmp_path / "n.csv"),
        *queue,
    )
    store = Store(tmp_path / "queue", create=True)
    Rights.fix(store, Quotas.of(["runs=2", "production=1", "bytes=0"]), None)
    assert call("submit", *words, "--creator", "ada", "--name", "a", "--priority", "production") == 0
    with pytest.raises(UserError, match=r"ada has 1 production runs, the most of one person"):
        call("submit", *words, "--creator", "ada", "--priority", "production")
    assert call("submit", *words, "--creator", "ada", "--name", "b") == 0
    with pytest.raises(UserError, match=r"ada has 2 runs in the queue.*--quota runs"):
        call("submit", *words, "--creator", "ada")
    assert call("submit", *words, "--creator", "bob", "--name", "c") == 0
    monkeypatch.setattr("os.getuid", lambda: 4_711)  # who does not own the folder
    with pytest.raises(UserError, match="a is of ada: only its owner"):
        call("cancel", "c", "a", *queue, "--creator", "bob")
    assert store.run("c").asked == ""  # all of them, or none
    assert call("cancel", "a", *queue, "--creator", "ada") == 0
    monkeypatch.undo()
    assert call("cancel", "b", *queue, "--creator", "bob") == 0  # who serves the queue


@pytest.mark.parametrize("text", ["runs", "runs=", "runs=-1", "jobs=3", "=3", "runs=x"])
def test_what_is_no_quota(text: str) -> None:
    with pytest.raises(UserError, match="say NAME=NUMBER, where NAME is one of runs, production, bytes"):
        Quotas.of([text])


def test_runs_of_a_schedule_count(tmp_path: Path) -> None:
    store = Store(tmp_path / "queue", create=True)
    rights = Rights.fix(store, Quotas(runs=1), None)
    runs = [
        store.submit(
            name, SPEC, Path("/n.csv"), owner="ada", production=True, deadline_ms=None, now_ms=0, schedule="n"
        )
        for name in ("n-1", "n-2")
    ]
    assert [rights.refused(run, SPEC, 0) for run in runs] == [
        "",
        "ada has 1 runs in the queue, the most of one person (--quota runs)",
    ]


def test_files_that_come_with_a_run_are_bounded() -> None:
    spec = Spec("", ("/a",), tables={"t.csv": b"12345"}, texts={"f.py": "12345"})
    assert Quotas(bytes=10).refused("ada", spec, False, []) == ""
    assert "10 bytes come with the run, 9 are the most" in Quotas(bytes=9).refused("ada", spec, False, [])
