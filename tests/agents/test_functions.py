"""User functions in processes of their own: whatever they do, the caller is told what, and where."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from elf.errors import UserError
from elf.functions import wire
from elf.functions.checks import check_job, check_text
from elf.functions.function import Done, Failed, UserFunction
from elf.functions.sandbox import Limits, Sandboxes
from elf.functions.zygote import NICENESS
from elf.job.group.master import PREPARE_LIMIT_MS
from elf.ql.plan import Function
from tests.support.confined import needs_confinement

TIGHT = Limits(call_secs=0.2, memory_bytes=48 << 20, rows_max=1_000, log_bytes_max=4_000)
BATCH = pa.RecordBatch.from_pydict({"x": list(range(100))})


def function(
    sandboxes: Sandboxes, body: str, folder: Path | None = None, log: list[str] | None = None
) -> UserFunction:
    said = log if log is not None else []
    text = f"import os, time\nimport pyarrow as pa\ndef map(batch):\n    {body}\n"
    return UserFunction(sandboxes, Function("map", text, "f.py"), TIGHT, said.append, folder)


def called(sandboxes: Sandboxes, body: str, batch: pa.RecordBatch = BATCH) -> Done | Failed:
    made = function(sandboxes, body)
    try:
        return made(batch)
    finally:
        made.close()


def test_a_function_maps_batch_after_batch_in_one_process(sandboxes: Sandboxes) -> None:
    made = function(sandboxes, "return batch.append_column('pid', pa.array([os.getpid()] * len(batch)))")
    pids = set()
    for _ in range(20):
        result = made(BATCH)
        assert isinstance(result, Done)
        assert result.batch["x"] == BATCH["x"]
        pids |= set(result.batch["pid"].to_pylist())
    made.close()
    assert len(pids) == 1
    assert os.getpid() not in pids


def test_the_row_that_raises_is_found_and_the_input_kept(sandboxes: Sandboxes, tmp_path: Path) -> None:
    made = function(sandboxes, "return [1 / (n - 77) for n in batch['x'].to_pylist()] and batch", tmp_path)
    result = made(BATCH, lambda row: f"clicks.log, line {row + 1}")
    assert isinstance(result, Failed)
    assert (result.trouble, result.line, result.row, result.origin) == (
        "raised",
        4,
        77,
        "clicks.log, line 78",
    )
    assert result.text.startswith("f.py:4: ZeroDivisionError: division by zero in `return [1 / (n - 77)")
    assert result.kept is not None
    kept = pa.ipc.open_file(pa.OSFile(str(result.kept))).read_all()
    assert kept.equals(pa.Table.from_batches([BATCH]))
    assert kept.schema.metadata[b"row"] == b"77"
    assert isinstance(made(BATCH.slice(0, 50)), Done)
    for _ in range(20):
        made(BATCH.slice(77, 1))
    assert len(list(tmp_path.iterdir())) == 16
    made.close()


@pytest.mark.parametrize(
    ("body", "trouble", "text"),
    [
        ("while True: pass", "blocked", "f.py: it did not return within 0.2 s"),
        ("time.sleep(60)", "blocked", "f.py: it did not return within 0.2 s"),
        ("x = bytearray(200 << 20)", "memory", "f.py:4: MemoryError: it wants more than its 48 MiB"),
        ("x = pa.allocate_buffer(200 << 20)", "memory", "f.py:4: MemoryError: it wants more than its 48 MiB"),
        ("os._exit(3)", "died", "f.py: its process ended in the middle of a call (exit status 3)"),
        (
            "os.kill(os.getpid(), 11)",
            "died",
            "f.py: its process ended in the middle of a call (killed by SIGSEGV)",
        ),
        ("raise SystemExit(0)", "raised", "f.py:4: SystemExit: 0"),
        ("return 5", "raised", "f.py: it returns int, not a pyarrow.RecordBatch or Table"),
        (
            "return pa.table({'x': range(5000)})",
            "raised",
            "f.py: it returns 5000 rows; at most 1000 are taken",
        ),
        ("os.write(3, b'x' * 100); return batch", None, ""),
    ],
)
def test_each_way_to_fail_is_told_and_costs_nobody_else(
    sandboxes: Sandboxes, body: str, trouble: str | None, text: str
) -> None:
    began = time.monotonic()
    result = called(sandboxes, body, BATCH.slice(0, 1))
    assert time.monotonic() - began < 20
    if trouble is not None:
        assert isinstance(result, Failed)
        assert (result.trouble, result.text[: len(text)], result.row) == (trouble, text, 0)


def test_one_that_blocks_is_there_again_for_the_next_batch(sandboxes: Sandboxes) -> None:
    made = function(sandboxes, "time.sleep(9 if batch['x'][0].as_py() else 0); return batch")
    assert isinstance(made(BATCH.slice(1, 1)), Failed)
    assert isinstance(made(BATCH.slice(0, 1)), Done)
    made.close()


def test_the_row_that_blocks_is_not_looked_for_longer_than_a_change_of_version_waits(
    sandboxes: Sandboxes,
) -> None:
    """Each look costs a time limit: a stream stood still for seven of them, and nobody answered for six."""
    looks = 0

    class Counted(UserFunction):
        def _call(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            nonlocal looks
            looks += 1
            return super()._call(batch)

    rows = pa.RecordBatch.from_pydict({"x": list(range(1_000))})
    made = Counted(sandboxes, function(sandboxes, "while True: pass").spec, Limits(), print)
    found = made(rows)
    made.close()
    assert isinstance(found, Failed)
    assert found.trouble == "blocked"
    assert 1 < looks < PREPARE_LIMIT_MS / 1000 / Limits().call_secs


def test_what_it_prints_is_logged_up_to_a_limit(sandboxes: Sandboxes) -> None:
    said: list[str] = []
    made = function(
        sandboxes,
        "print('x' * 99 + '\\n' * len(batch)); [print('y' * 999) for _ in range(500)]; return batch",
        log=said,
    )
    assert isinstance(made(BATCH), Done)
    made.close()
    assert said[0] == "x" * 99
    assert 2_000 < sum(map(len, said)) <= TIGHT.log_bytes_max
    assert made._sandbox.log_bytes_dropped > 400_000


def template_of(sandboxes: Sandboxes) -> subprocess.Popen[bytes]:
    """The process that the sandboxes are forked from."""
    assert sandboxes._template._zygote is not None
    return sandboxes._template._zygote


def test_frames_come_whole_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        said, large = wire.Asks(7, b"a" * 16, "me/j", b"q", (), 5), os.urandom(3 << 20)
        writer = wire.Frames(ours, 4 << 20)
        reader = wire.Frames(theirs, 4 << 20)
        for payload in (b"", b"few", large):
            with ThreadPoolExecutor(1) as pool:
                sending = [pool.submit(writer.send, said, payload) for _ in range(3)]
                for sent in sending:
                    assert reader.take_by_agent(60) == (said, payload)
                    sent.result()
        assert not reader.has_more
        writer.send(said, b"few")
        whole = theirs.recv(1 << 10)
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(reader.take_by_agent, 60)
            for place in range(len(whole)):
                ours.sendall(whole[place : place + 1])
            assert taking.result() == (said, b"few")
        ours.sendall(whole + whole[:-1])
        assert reader.take_by_agent(60) == (said, b"few")
        assert reader.has_more
        with pytest.raises(TimeoutError):
            reader.take_by_agent(0.01)


def test_what_does_not_read_holds_its_writer_up_for_so_long() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(TimeoutError):
        wire.Frames(ours, 64 << 20).send(wire.Done(), bytes(32 << 20), 0.05)


def test_the_template_may_die(sandboxes: Sandboxes) -> None:
    made = function(sandboxes, "return batch")
    assert isinstance(made(BATCH), Done)
    template = template_of(sandboxes)
    template.kill()
    template.wait()
    results = [made(BATCH.slice(0, 1)) for _ in range(3)]
    assert isinstance(results[-1], Done)
    made.close()


def test_the_template_and_sandboxes_let_the_agent_go_first(sandboxes: Sandboxes) -> None:
    """64 agents that started theirs at once, as a job in Python makes them do, heard nothing for 9 s."""
    pid, control, output = sandboxes.fork(Limits())
    control.close()
    os.close(output)
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    nice = [os.getpriority(os.PRIO_PROCESS, one) - ours for one in (template_of(sandboxes).pid, pid)]
    assert nice == [NICENESS, NICENESS]
    sandboxes.end(pid)


@needs_confinement
def test_nothing_is_left_when_the_sandboxes_are_closed() -> None:
    own = Sandboxes()
    made = function(own, "return batch")
    made(BATCH)
    pids = [made._sandbox.pid, template_of(own).pid]
    own.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def map(:", "k.py:1: SyntaxError: invalid syntax in `def map(:`"),
        ("def nap(b): pass", "k.py has no `def map(batch)` at its top level; functions there: nap"),
        ("\ndef map(a, b): pass", "k.py:2: map() must take one argument, a pyarrow.RecordBatch"),
        ("def map(b, *, k): pass", "k.py:1: map() must take one argument, a pyarrow.RecordBatch"),
    ],
)
def test_a_function_is_checked_before_it_is_sent(text: str, line: str) -> None:
    with pytest.raises(UserError) as refused:
        check_text(Function("map", text, "k.py"))
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_a_good_function_and_a_job_pass_the_check(sandboxes: Sandboxes) -> None:
    check_text(Function("reduce", "def reduce(batch, more=1): return batch", "k.py"))
    text = (
        "from elf.job import Job\nclass J(Job):\n  every = 2\n"
        "  def start(self): self.subscribe(app='you/other')\n"
    )
    loaded = check_job(sandboxes, text, "j.py", "j", "me")
    assert (loaded.title, loaded.every_ms, [w.name for w in loaded.subscriptions]) == (
        "J",
        2_000,
        ["you/other"],
    )
    with pytest.raises(UserError, match=r"j.py:4: ZeroDivisionError: .*; mend it and send it again"):
        check_job(sandboxes, text.replace("self.subscribe(app='you/other')", "1 / 0"), "j.py", "j", "me")


def test_a_job_in_rounds_that_cannot_combine_is_not_sent(sandboxes: Sandboxes) -> None:
    text = "from elf.job import Rounds\nclass J(Rounds):\n  def contribute(self, message): return 1\n"
    with pytest.raises(UserError) as refused:
        check_job(sandboxes, text, "j.py", "j", "me")
    said = "j.py: J must define combine(self, one, other); mend it and send it again"
    assert str(refused.value) == said
    assert check_job(sandboxes, f"{text}  def combine(self, one, other): return one\n", "j.py", "j", "me")
