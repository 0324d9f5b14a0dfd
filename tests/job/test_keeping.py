"""What a job in Python keeps: checkpoints of one moment, slices with names, and what is done again."""

from __future__ import annotations

import pytest

from elf.errors import ElfBug
from elf.job.program import keeping
from elf.job.program.calls import Delivered, Event, Keep, MulticastOut, Place, Rows, SendTo, Timer
from elf.job.program.keeping import CHECKPOINT_MS, RESEND_MS, Checkpoint, Keeping, Lasting, Slice, read
from elf.job.program.port import CallProgram

A, B = "a:1", "b:1"
ROWS = ("main", "log")


def written(job: Keeping) -> Checkpoint:
    """Its next checkpoint, as it comes from the disk."""
    taken = job.take_checkpoint()
    assert taken is not None
    return read(taken[1])


def kept(job: Keeping) -> Checkpoint:
    """The same, which is durable."""
    found = written(job)
    job.saved(job._written, 0)
    return found


def test_a_checkpoint_is_of_the_last_call_whose_state_is_told() -> None:
    job = Keeping(None, 0)
    for end in (10, 20, 30):
        job.calls(0, 1)
        job.gave_rows(ROWS, end)
    job.acted(2, b"two")
    found = written(job)
    assert (found.state, found.ends()) == (b"two", {ROWS: 20})
    assert job.has_rows(ROWS, 30), "they are on their way"
    again = Keeping(found, 0)
    assert again.has_rows(ROWS, 20)
    assert not again.has_rows(ROWS, 30)


def test_a_chunk_without_rows_moves_on_with_the_call_before() -> None:
    job = Keeping(None, 0)
    job.calls(0, 1)
    job.gave_rows(ROWS, 10)
    job.gave_rows(ROWS, 15)
    job.acted(1, b"")
    assert written(job).ends() == {ROWS: 15}


def test_what_is_sent_leaves_with_the_checkpoint_that_has_it() -> None:
    job = Keeping(None, 0)
    job.calls(0, 1)
    job.acted(1, b"one")
    assert job.sends(SendTo(A, b"x"), 0)
    assert job.sends(MulticastOut(b"y"), 0)
    assert written(job).waiting == (Slice(1, A, b"x"),)
    job.calls(0, 1)
    job.acted(2, b"two")
    job.sends(SendTo(B, b"z"), 0)
    assert job.take_checkpoint() is None, "one at a time"
    assert job.saved(1, 0).effects == (Slice(1, A, b"x"), MulticastOut(b"y"))
    assert written(job).waiting == (Slice(1, A, b"x"), Slice(2, B, b"z"))
    assert job.saved(2, 0).effects == (Slice(2, B, b"z"),)


def test_a_slice_is_sent_again_until_it_is_kept() -> None:
    job = Keeping(None, 0)
    job.calls(0, 1)
    job.acted(1, b"")
    job.sends(SendTo(A, b"x"), 0)
    assert job.resends(RESEND_MS) == [], "it has not left yet"
    found = kept(job)
    assert job.resends(RESEND_MS - 1) == []
    assert job.resends(RESEND_MS) == [Slice(1, A, b"x")]
    assert job.resends(RESEND_MS + 1) == []
    again = Keeping(found, 5_000)
    assert again.resends(5_000) == [Slice(1, A, b"x")], "after a crash, at once"
    again.is_kept(B, [1])
    assert again.settled(A) == 1, "another agent has no word in that"
    again.is_kept(A, [1])
    assert (again.settled(A), again.resends_at()) == (2, None)


def test_a_slice_is_received_once_and_kept_when_that_is_durable() -> None:
    job = Keeping(None, 0)
    assert job.received("id", 1, 1) is None
    job.calls(0, 1)
    job.takes("id", (B, 0), 1)
    assert job.received("id", 1, 1) is False, "it is known, and not durable"
    assert Keeping(None, 0).received("id", 1, 1) is None, "after a crash it is new"
    job.acted(1, b"with it")
    found = written(job)
    assert job.saved(1, 0).kept == (((B, 0), 1),)
    assert job.received("id", 1, 1) is True
    assert Keeping(found, 0).received("id", 1, 1) is True


def test_names_are_forgotten_when_their_sender_has_no_use_for_them() -> None:
    job = Keeping(None, 0)
    for number in range(1, 100):
        assert job.received("id", number, number) is None
        job.calls(0, 1)
        job.takes("id", (B, 0), number)
    job.acted(99, b"")
    (sender,) = written(job).received
    assert (sender.settled, sender.numbers) == (99, (99,))
    assert job.received("id", 7, 1) is True, "a late copy of what is kept"


def test_a_call_that_was_not_made_leaves_its_slice_welcome() -> None:
    job = Keeping(None, 0)
    assert job.received("id", 1, 1) is None
    job.calls(0, 1)
    job.takes("id", (B, 0), 1)
    job.lost([1])
    assert job.received("id", 1, 1) is None
    job.calls(0, 1)
    job.takes("id", (B, 0), 1)
    job.acted(2, b"")
    written(job)
    assert job.saved(1, 0).kept == (((B, 0), 1),)


def test_a_slice_moves_under_another_name_when_a_checkpoint_says_so() -> None:
    job = Keeping(Checkpoint(b"s", waiting=(Slice(3, A, b"x"),), slices=3), 0)
    (slice_,) = job.resends(0)
    job.moves(slice_, B)
    found = written(job)
    assert (found.state, found.waiting) == (b"s", (Slice(4, B, b"x"),))
    assert job.saved(1, 0).effects == (Slice(4, B, b"x"),)


def test_a_slice_that_is_said_to_be_kept_before_it_leaves_is_not_sent_again() -> None:
    job = Keeping(None, 0)
    job.calls(0, 1)
    job.acted(1, b"")
    job.sends(SendTo(A, b"x"), 0)
    job.is_kept(A, [1])
    kept(job)
    assert (job.resends_at(), job.resends(RESEND_MS)) == (None, [])


def test_more_than_others_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "WAITING_BYTES_MAX", 10)
    job = Keeping(None, 0)
    assert job.sends(SendTo(A, b"12345678"), 0)
    assert not job.sends(SendTo(A, b"123"), 0)
    assert job.sends(SendTo(A, b"12"), 0)


def test_the_state_is_asked_for_when_rows_have_waited_or_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Keeping(None, 0)
    assert job.asks_at() is None
    job.calls(100, 1)
    assert job.asks_at() == 100 + CHECKPOINT_MS
    job.calls(200, keeping.UNKEPT_BYTES_MAX)
    assert job.asks_at() == 100
    job.calls(1_200, 0)
    job.asked(1_200)
    assert job.asks_at() is None, "it is asked for"
    job.acted(3, b"")
    assert job.asks_at() is None
    job.calls(5_000, 1)
    assert job.asks_at() == 5_000 + CHECKPOINT_MS


def test_the_state_is_asked_for_again_where_the_last_asking_was_dropped() -> None:
    """As a host drops it while it still has the one before."""
    job = Keeping(None, 0)
    for now_ms in (1_000, 2_000):
        job.calls(now_ms, 1)
        job.calls(now_ms, 0)
        job.asked(now_ms)
    job.acted(2, b"of the first")
    assert job.asks_at() == 2_000 + CHECKPOINT_MS


def test_panes_are_told_where_they_were() -> None:
    job = Keeping(None, 0)
    for pane in (5, 6, 7):
        job.calls(0, 1)
        job.told_panes(pane)
    job.acted(2, b"")
    assert written(job).pane == 6


def test_sources_that_were_read_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "SOURCES_MAX", 2)
    job = Keeping(None, 0)
    for source in ("one", "two", "one", "three"):
        job.gave_rows(("main", source), 10)
    assert [job.has_rows(("main", one), 10) for one in ("one", "two", "three")] == [True, False, True]


def test_the_next_process_has_the_last_state_and_the_calls_since() -> None:
    events: list[Event] = [Rows("one"), Timer(), Rows("two"), Delivered(b"", b"", query="q"), Keep()]
    calls = [CallProgram("u", event, Place("a", 0), number=n) for n, event in enumerate(events)]
    job = Lasting(b"before")
    for call in calls:
        job.made(call)
    assert (job.state, job.again()) == (b"before", [calls[0], calls[2]]), (
        "what was asked, and when, has passed"
    )
    assert job.again() == []
    job.made(calls[0])
    job.acted(None)
    job.made(calls[2])
    job.acted(b"both")
    assert (job.state, job.again()) == (b"both", [])


def test_a_record_that_is_none_is_said_to_be_damaged() -> None:
    with pytest.raises(ElfBug, match="checkpoint of a job in Python"):
        read(b"\x93\x01\x02\x03")


def test_chunks_without_rows_leave_nothing_behind() -> None:
    job = Keeping(None, 0)
    for end in range(1, 1_000):
        job.gave_rows(ROWS, end)
    assert job.has_rows(ROWS, 999)
    assert len(job._given[ROWS]._steps) == 1


def test_slices_for_one_who_is_away_leave_others_their_turn() -> None:
    away = tuple(Slice(n, A, b"x") for n in range(1, keeping.RESENDS_MAX + 1))
    job = Keeping(Checkpoint(b"s", waiting=(*away, Slice(1_000, B, b"x")), slices=1_000), 0)
    assert Slice(1_000, B, b"x") not in job.resends(0)
    assert job.resends(keeping.RESENDS_MS) == [Slice(1_000, B, b"x")]
