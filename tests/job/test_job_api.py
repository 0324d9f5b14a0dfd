"""The class that jobs are written with, its messages, and the lines that its mistakes are told in."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from elf.batch import encode
from elf.errors import PeerError
from elf.job.program import calls
from elf.job.program.calls import JobEffect, Place
from elf.job.program.runner import Ask, JobRunner, NotKept, failure_of
from elf.job.program.spec import Tap
from elf.job.program.values import NoMessage, pack_value, unpack_value
from lab.chaos.engine import plan
from lab.chaos.programs import no_queries

HEAD = "from elf.job import Job\nclass J(Job):\n"
TAP = Tap("main", plan().fragment, (("k0", "key"),), (("s0", "n"),))
QUERY = '  def start(self): self.subscribe("SELECT …")\n'


def runner(body: str, ask: Ask = no_queries, taps: tuple[Tap, ...] = ()) -> JobRunner:
    return JobRunner(HEAD + body, "job.py", "j", "me", ask, taps)


def told(body: str, event: calls.Event | None = None, place: Place | None = None) -> str:
    """What a mistake is told as."""
    try:
        made = runner(body)
        made.start(Place("a:1", 0))
        made.handle(event or calls.Timer(), place or Place("a:1", 0), b"", [])
    except Exception as error:
        failure = failure_of(error, "job.py")
        return f"{failure.line}: {failure.text}"
    return ""


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -5,
        1 << 80,
        2.5,
        "é",
        b"\0",
        [1, [2]],
        {"a": {"b": None}, 3: 4},
        datetime(2026, 1, 1, tzinfo=UTC),
    ],
)
def test_a_message_arrives_as_it_was_sent(value: object) -> None:
    assert unpack_value(pack_value(value)) == value


def test_tables_and_decimals_arrive_in_what_people_work_with() -> None:
    table = pa.table({"x": [1, 2]})
    got = unpack_value(
        pack_value({"t": table, "b": table.to_batches()[0], "n": Decimal(7), "f": Decimal("0.5")})
    )
    assert got == {"t": table, "b": table, "n": 7, "f": 0.5}
    with pytest.raises(NoMessage, match="not object"):
        pack_value(object())
    with pytest.raises(NoMessage, match="at most"):
        pack_value(b"x" * (5 << 20))
    with pytest.raises(PeerError):
        unpack_value(b"\xc1")


def test_the_local_tree_is_inserted_flushed_and_emptied() -> None:
    body = QUERY + (
        "  def on_timer(self):\n"
        "    self.insert(self.merge(None, self.flush()))\n"
        "    self.send_to('b:1', self.flush())\n"
        "    self.empty()\n"
        "    self.send_to('b:1', self.flush().num_rows)\n"
    )
    made = runner(body, taps=(TAP,))
    made.start(Place("a:1", 0))
    groups = pa.table({"k0": ["x", "y", "x"], "s0": pa.array([1, 2, 3], pa.int64()), "_pane": [0, 0, 0]})
    effects: list[JobEffect] = []
    made.handle(calls.Rows("main"), Place("a:1", 0), encode(groups), effects)
    made.handle(calls.Timer(), Place("a:1", 0), b"", effects)
    sent: list[Any] = [unpack_value(e.value) for e in effects]
    assert {row["key"]: row["n"] for row in sent[0].to_pylist()} == {"x": 8, "y": 4}
    assert sent[1] == 0


def test_groups_are_there_though_others_of_their_chunk_cannot_be_read() -> None:
    made = runner(QUERY, taps=(TAP,))
    made.start(Place("a:1", 0))
    groups = encode(pa.table({"k0": ["x"], "s0": pa.array([1], pa.int64()), "_pane": [0]}))
    made.handle(calls.Rows("main", (("main", groups),)), Place("a:1", 0), groups, [])
    with pytest.raises(PeerError):
        made.handle(calls.Rows("main", (("main", groups),)), Place("a:1", 0), b"none", [])
    assert [row["n"] for row in made.job.flush().to_pylist()] == [3]


def test_a_query_carries_its_path_and_reply_answers() -> None:
    asked: list[tuple[object, ...]] = []

    def ask(*question: object) -> tuple[bytes, str]:
        asked.append(question)
        return pack_value(41), ""

    made = runner(
        "  def deliver(self, app, message): return self.query('you/other', message, 0.5) + 1\n", ask
    )
    effects: list[JobEffect] = []
    made.handle(calls.Delivered(b"\1" * 16, pack_value("q"), ("a/b",), "x|7"), Place("a:1", 0), b"", effects)
    assert asked[0][1:] == ("you/other", pack_value("q"), ("a/b", "me/j"), 500)
    assert effects == [calls.ReplyOut("x|7", pack_value(42))]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("  def on_timer(self):\n    x = {}\n    return x['k']\n", "5: KeyError: 'k'"),
        (
            "  def on_timer(self): self.multicast(1)\n",
            "3: JobError: only the master multicasts: ask is_root first",
        ),
        (
            "  def on_timer(self): self.send_to(self.parent, 1)\n",
            "3: JobError: send_to nobody: the root has no",
        ),
        ("  def on_timer(self): self.flush()\n", "3: JobError: there is no query main here"),
        ("  def on_timer(self): self.reply(1)\n", "3: JobError: there is nothing to reply to"),
        ("  def on_timer(self): self.subscribe(app='x')\n", "3: JobError: subscribe in start(), not later"),
        (
            "  def on_timer(self): self.send_to('a', self)\n",
            "3: JobError: this cannot be sent: a message may hold",
        ),
        (
            "  def start(self): self.subscribe()\n",
            "3: JobError: subscribe takes a query, or stream=, or app=",
        ),
        ("  def start(self): self.subscribe(stream='x')\n", "3: JobError: subscribe(stream=…) needs columns"),
        ("  def start(self): self.send_to('a', 1)\n", "0: start() only subscribes"),
        ("  every = -1\n", "0: every = -1: seconds between two on_timer"),
        ("  pass\nclass K(Job): pass\n", "0: job.py must define one subclass of elf.job.Job; it has J, K"),
        ("  x = (\n", "3: SyntaxError: '(' was never closed"),
    ],
)
def test_a_mistake_is_one_line_at_its_place(body: str, line: str) -> None:
    assert told(body).startswith(line)


def test_a_multicast_has_more_room_than_other_messages() -> None:
    body = '  def on_timer(self): self.multicast(b"x" * (16 << 20))\n'
    root = Place("a:1", 0, root=True)
    assert told(body, place=root) == "3: JobError: a message of 16777221 bytes; at most 16777216 can be sent"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("  every_pane = 0\n", "every_pane = 0: seconds of event time, at least 0.001, or None"),
        ("  every_pane = '1'\n", "every_pane = '1': seconds of event time, at least 0.001, or None"),
        ("  every_pane = 1.0\n", "every_pane goes with rows: subscribe to a query, or to a stream"),
    ],
)
def test_panes_that_cannot_be_are_refused(body: str, said: str) -> None:
    assert told(body) == f"0: {said}"


STATEFUL = """  every_pane = 2.0
  def start(self):
    self.subscribe("SELECT …", name="main")
    self.starts = self.state.setdefault("starts", 0)
    self.state["starts"] += 1
  def on_pane(self, start, end): self.state[str(start)] = (end, {1})
"""


def test_what_a_job_has_comes_back_in_another_process() -> None:
    made = runner(STATEFUL, taps=(TAP,))
    loaded = made.start(Place("a:1", 0))
    assert loaded.pane_ms == 2_000
    groups = pa.table({"key": ["x", "y"], "n": pa.array([1, 2], pa.int64())})
    made.job.insert(groups)
    made.handle(calls.Pane(2_000_000, 4_000_000), Place("a:1", 0), b"", [])
    again = runner(STATEFUL, taps=(TAP,))
    again.start(Place("a:1", 0), made.state())
    assert again.job.state == {"starts": 2, "2.0": [4.0, [1]]}, "tuples and sets come back as lists"
    assert sorted(again.job.flush().to_pylist(), key=str) == sorted(groups.to_pylist(), key=str)
    made.job.empty()
    once_more = runner(STATEFUL, taps=(TAP,))
    once_more.start(Place("a:1", 0), made.state())
    assert once_more.job.flush().num_rows == 0, "what it has now, not an image of before"


def test_a_state_that_is_too_large_says_what_to_do() -> None:
    made = runner("  pass\n")
    made.start(Place("a:1", 0))
    made.job.state["all"] = [b"x" * (9 << 20)] * 2
    with pytest.raises(NotKept, match=r"self\.state cannot be kept: .* at most 16777216"):
        made.state()
