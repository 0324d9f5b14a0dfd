"""Following files through everything that log rotation and restarts do to them: no line lost, none twice."""

from __future__ import annotations

import gzip
import lzma
import os
import random
from pathlib import Path

import pytest

from agents.inputs.follower import Follower
from agents.inputs.tail import Tail
from agents.inputs.values import Chunk, Position
from tests.support.files import drain, lines, write

WAIT_MS = 5_000


def ids(chunks: list[Chunk]) -> list[str]:
    return list(dict.fromkeys(chunk.source.id for chunk in chunks))


def test_an_unfinished_line_waits(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one\ntw")
    tail = Tail([str(log)])
    assert lines(drain(tail, 0)) == ["one"]
    assert drain(tail, 1) == []
    write(log, "o\nthree\n")
    chunks = drain(tail, 2)
    assert lines(chunks) == ["two", "three"]
    assert (chunks[0].start, chunks[0].end, chunks[0].at_end) == (4, 14, True)
    assert tail.positions()[0].offset == 14
    tail.close()


def test_new_files_are_found_at_the_next_scan_and_excluded_ones_are_not(tmp_path: Path) -> None:
    tail = Tail([str(tmp_path / "**" / "*.log")], exclude=["*debug*"])
    assert drain(tail, 0) == []
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write(tmp_path / "deep" / "er" / "a.log", "deep\n")
    write(tmp_path / "debug.log", "never\n")
    assert drain(tail, 999) == []
    assert lines(drain(tail, 1000)) == ["deep"]
    tail.close()


def test_rename_rotation_reads_the_old_file_to_its_end_and_the_new_one_from_its_beginning(
    tmp_path: Path,
) -> None:
    log = tmp_path / "a.log"
    write(log, "one\n")
    tail = Tail([str(log)], rotate_wait_secs=WAIT_MS / 1000)
    before = drain(tail, 0)
    write(log, "two\n")
    log.rename(tmp_path / "a.log.1")
    write(log, "new\n")
    after = drain(tail, 1000)
    assert sorted(lines(after)) == ["new", "two"]
    old = ids(before)[0]
    # Its writer has not noticed the rename, and never ends its last line.
    write(tmp_path / "a.log.1", "three\nla")
    assert lines(drain(tail, 2000)) == ["three"]
    write(tmp_path / "a.log.1", "st")
    assert drain(tail, 2000 + WAIT_MS - 1) == []
    assert tail.finished() == ()
    assert lines(drain(tail, 2000 + WAIT_MS)) == ["last"]
    assert drain(tail, 2001 + 2 * WAIT_MS) == []
    assert tail.finished() == (old,)
    assert tail.finished() == ()
    write(log, "newer\n")
    last = drain(tail, 20_000)
    assert lines(last) == ["newer"]
    assert ids(last) != [old]
    tail.close()


def test_a_renamed_file_that_the_globs_still_match_stays_one_source(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one\n")
    tail = Tail([str(tmp_path / "a.log*")], rotate_wait_secs=0)
    first = drain(tail, 0)
    log.rename(tmp_path / "a.log.1")
    write(tmp_path / "a.log.1", "two\n")
    second = drain(tail, 5000)
    assert lines(second) == ["two"]
    assert ids(second) == ids(first)
    assert second[0].source.path.endswith("a.log.1")
    tail.close()


def test_a_deleted_file_is_read_to_its_end_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one\n")
    tail = Tail([str(log)], rotate_wait_secs=1)
    drain(tail, 0)
    write(log, "two\n")
    log.unlink()
    assert lines(drain(tail, 1000)) == ["two"]
    assert drain(tail, 9000) == []  # who writes it may go on for as long as there is no other
    assert "No such file" in tail.counters.problems[str(log)]
    assert tail.finished() == ()
    write(log, "three\n")
    assert lines(drain(tail, 10_000)) == ["three"]
    assert tail.counters.vanished == 1
    assert len(tail.finished()) == 1
    assert [position.finished for position in tail.positions()] == [False, True, True]
    log.unlink()
    drain(tail, 11_000)
    drain(tail, 700_000)
    assert tail.counters.vanished == 2
    assert tail.gaps() == ()
    tail.close()


@pytest.mark.parametrize("new", ["x\n", "a longer beginning than before\n"])
def test_copytruncate_is_a_new_generation_and_counts_what_is_lost(tmp_path: Path, new: str) -> None:
    log = tmp_path / "a.log"
    write(log, "one\ntwo\n")
    tail = Tail([str(log)])
    before = drain(tail, 0)
    write(log, "unread\n")
    tail.read(1, 1)
    write(log, "never seen")
    os.truncate(log, 0)
    write(log, new)
    after = drain(tail, 2)
    assert lines(after) == [new.rstrip("\n")]
    assert ids(after) != ids(before)
    assert tail.finished() == tuple(ids(before))
    assert tail.counters.truncated == 1
    # What was written between the last look and the truncation nobody can know.
    assert tail.counters.lost_bytes == 0
    tail.close()


def test_bytes_seen_but_not_read_before_a_truncation_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one\n" * 10)
    tail = Tail([str(log)])
    tail.read(8, 0)
    os.truncate(log, 0)
    assert drain(tail, 1) == []
    assert (tail.counters.truncated, tail.counters.lost_bytes) == (1, 32)
    tail.close()


def test_a_file_begun_anew_while_it_is_read_is_not_mistaken_for_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    write(log, "old one\nold two\n")
    tail = Tail([str(log)])
    assert lines(drain(tail, 0)) == ["old one", "old two"]
    write(log, "old three\n")
    pread = os.pread

    def rewritten(descriptor: int, count: int, offset: int) -> bytes:
        """Between our look at the file and our read of it."""
        if offset == 16:
            monkeypatch.setattr(os, "pread", pread)
            os.truncate(log, 0)
            write(log, "new one and much more\nnew two\n")
        return pread(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", rewritten)
    found = drain(tail, 1) + drain(tail, 2)
    assert lines(found) == ["new one and much more", "new two"]
    assert tail.counters.truncated == 1
    tail.close()


def test_initial_end_starts_behind_the_last_whole_line_but_later_files_from_their_beginning(
    tmp_path: Path,
) -> None:
    write(tmp_path / "a.log", "old\nhalf")
    tail = Tail([str(tmp_path / "*.log")], initial="end")
    assert drain(tail, 0) == []
    assert tail.positions()[0].offset == 4
    write(tmp_path / "a.log", " a line\n")
    write(tmp_path / "b.log", "fresh\n")
    assert sorted(lines(drain(tail, 1000))) == ["fresh", "half a line"]
    tail.close()


def restart(tail: Tail, include: Path, **more: object) -> Tail:
    positions = tail.positions()
    tail.close()
    return Tail([str(include)], positions=positions, rotate_wait_secs=1)


def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one\ntwo\n")
    tail = Tail([str(log)])
    chunk = tail.read(4, 0)
    assert chunk is not None
    assert lines([chunk]) == ["one"]
    write(log, "three\n")
    tail = restart(tail, log)
    found = drain(tail, 0)
    assert lines(found) == ["two", "three"]
    assert ids(found) == ids([chunk])
    tail.close()


def test_a_restart_finds_a_file_that_was_renamed_out_of_the_globs(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "one\n")
    tail = Tail([str(log)])
    first = drain(tail, 0)
    write(log, "two\n")
    log.rename(tmp_path / "a.log.1")
    write(log, "new\n")
    tail = restart(tail, log)
    found = drain(tail, 0)
    assert sorted(lines(found)) == ["new", "two"]
    assert ids(first)[0] in ids(found)
    drain(tail, 1000)
    assert tail.finished() == tuple(ids(first))
    tail.close()


def test_after_a_restart_a_shrunk_file_is_a_new_generation_and_a_lost_one_is_finished(tmp_path: Path) -> None:
    write(tmp_path / "a.log", "one\ntwo\n")
    write(tmp_path / "b.log", "gone\n")
    tail = Tail([str(tmp_path / "*.log")])
    first = ids(drain(tail, 0))
    os.truncate(tmp_path / "a.log", 4)
    (tmp_path / "b.log").unlink()
    tail = restart(tail, tmp_path / "*.log")
    found = drain(tail, 0)
    assert lines(found) == ["one"]
    assert ids(found)[0] not in first
    assert set(tail.finished()) == set(first)
    assert tail.counters.vanished == 1
    tail.close()


def test_a_reused_inode_is_another_source(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "something else\n")
    status = log.stat()
    stale = Position("old", str(log), 5, status.st_dev, status.st_ino, 0, 4, 12345)
    tail = Tail([str(log)], positions=[stale])
    found = drain(tail, 0)
    assert lines(found) == ["something else"]
    assert ids(found) != ["old"]
    assert tail.finished() == ("old",)
    tail.close()


def test_an_inode_given_to_a_file_with_the_same_beginning_is_another_source(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "#header\none\n")
    tail = Tail([str(log)], rotate_wait_secs=0)
    key = (log.stat().st_dev, log.stat().st_ino)
    first = drain(tail, 0)
    log.unlink()
    drain(tail, 1000)
    drain(tail, 700_000)
    for _ in range(50):
        write(log, "#header\none\n")
        if (log.stat().st_dev, log.stat().st_ino) == key:
            break
        log.rename(tmp_path / f"keep{random.random()}")
    second = drain(tail, 701_000)
    assert lines(second) == ["#header", "one"]
    assert ids(second) != ids(first)
    tail.close()


def test_sources_are_read_in_turn(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.log", f"{name}\n" * 3)
    tail = Tail([str(tmp_path / "*.log")])
    found = lines(drain(tail, 0, bytes_max=2))
    assert sorted(found[:3]) == sorted(found[3:6]) == ["a", "b", "c"]
    tail.close()


def test_what_cannot_be_read_is_named_and_nothing_else_stops(tmp_path: Path) -> None:
    write(tmp_path / "good.log", "fine\n")
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "loop.log").symlink_to(tmp_path / "loop.log")
    (tmp_path / "dangling.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "link.log").symlink_to(tmp_path / "good.log")
    (tmp_path / "empty.log").touch()
    (tmp_path / "old.log").write_bytes(gzip.compress(b"packed\n"))
    (tmp_path / "older.log").write_bytes(lzma.compress(b"packed\n"))
    os.mkfifo(tmp_path / "pipe.log")
    missing = tmp_path / "missing"
    tail = Tail([str(tmp_path / "*.log"), str(missing), str(tmp_path)])
    assert lines(drain(tail, 0)) == ["fine"]
    named = {Path(path).name: reason for path, reason in tail.counters.problems.items()}
    assert set(named) == {
        "loop.log",
        "dangling.log",
        "old.log",
        "older.log",
        "pipe.log",
        "missing",
        tmp_path.name,
    }
    assert named["old.log"] == named["older.log"] == "compressed: not followed"
    assert named["pipe.log"] == "not a regular file"
    tail.close()


def test_a_file_that_may_not_be_opened_is_named_and_read_once_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    write(log, "one\n")
    real = os.open

    def refused(path: str, flags: int, mode: int = 0o777) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refused)
    tail = Tail([str(log)])
    assert drain(tail, 0) == []
    assert tail.counters.problems == {str(log): "Permission denied"}
    monkeypatch.setattr(os, "open", real)
    assert lines(drain(tail, 1000)) == ["one"]
    assert tail.counters.problems == {}
    tail.close()


def test_a_read_that_fails_goes_on_from_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    write(log, "one\n")
    tail = Tail([str(log)])
    first = drain(tail, 0)
    write(log, "two\n")

    def broken(descriptor: int, count: int, offset: int) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        assert drain(tail, 1) == []
        assert tail.counters.failed == 1
        assert tail.positions()[0].offset == 4
    second = drain(tail, 1001)
    assert lines(second) == ["two"]
    assert ids(second) == ids(first)
    tail.close()


def test_a_huge_line_is_rejected_in_bounded_memory_and_the_stream_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "a.log"
    other = tmp_path / "b.log"
    huge = 10 << 20
    with log.open("w") as file:
        file.write("before\n")
        for _ in range(10):
            file.write("x" * (huge // 10))
    write(other, "elsewhere\n")
    largest = 0
    pread = os.pread

    def measured(descriptor: int, count: int, offset: int) -> bytes:
        nonlocal largest
        largest = max(largest, count)
        return pread(descriptor, count, offset)

    monkeypatch.setattr(os, "pread", measured)
    tail = Tail([str(tmp_path / "*.log")], max_line_bytes=1 << 20)
    assert lines(drain(tail, 0, 64 << 10)) == ["before", "elsewhere"]
    # The position stays at the start of the line until its end is known.
    assert sorted(one.offset for one in tail.positions() if not one.finished) == [7, 10]
    write(log, "\r\nafter\n")
    chunks = drain(tail, 1, 64 << 10)
    assert lines(chunks) == ["after"]
    (reject,) = chunks[0].rejects
    assert (reject.offset, reject.length, reject.reason) == (7, huge, "line longer than 1048576 bytes")
    assert reject.data == b"x" * (64 << 10)
    assert largest <= (1 << 20) + 2
    tail.close()


def test_idle_files_cost_one_question_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write(tmp_path / f"{number}.log", "line\n")
    tail = Tail([str(tmp_path / "*.log")])
    drain(tail, 0)
    drain(tail, 1)
    calls = 0
    read = Follower.read

    def counted(follower: Follower, bytes_max: int, now_ms: int) -> Chunk | None:
        nonlocal calls
        calls += 1
        return read(follower, bytes_max, now_ms)

    def forbidden(descriptor: int, count: int, offset: int) -> bytes:
        raise AssertionError("a file that did not change was read")

    monkeypatch.setattr(Follower, "read", counted)
    monkeypatch.setattr(os, "pread", forbidden)
    assert drain(tail, 2) == []
    assert calls == 20
    tail.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_history_of_writing_rotating_and_restarting_gives_every_line_once(
    tmp_path: Path, seed: int
) -> None:
    """Writes, renames and restarts in random order, a random reader. No truncation: that may lose."""
    rng = random.Random(seed)
    log = tmp_path / "a.log"
    tail = Tail([str(log)], rotate_wait_secs=1)
    written: list[str] = []
    found: list[Chunk] = []
    rotations = 0
    now = 0
    for _ in range(120):
        now += rng.randrange(800)
        match rng.randrange(6):
            case 0 | 1 | 2:
                batch = [
                    f"line {len(written) + number} {'x' * rng.randrange(30)}"
                    for number in range(rng.randrange(1, 5))
                ]
                written += batch
                write(log, "".join(f"{line}\n" for line in batch))
            case 3 if log.exists():
                # A rotation is noticed by a scan: two between scans would hide the file in the middle.
                found += drain(tail, now := now + 1000, bytes_max=rng.randrange(1, 100))
                rotations += 1
                log.rename(tmp_path / f"a.log.{rotations}")
            case 4:
                chunk = tail.read(rng.randrange(1, 100), now)
                found += [chunk] if chunk is not None else []
            case 5:
                tail = restart(tail, log)
    found += drain(tail, now + 1000) + drain(tail, now + 5000) + drain(tail, now + 9000)
    assert sorted(lines(found)) == sorted(written)
    seen = {(chunk.source.id, offset) for chunk in found for offset in chunk.offsets.tolist()}
    assert len(seen) == len(written)
    assert tail.counters.lost_bytes == 0
    tail.close()
