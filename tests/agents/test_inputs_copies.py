"""Files that are copied and then cut (logrotate's ``copytruncate``) where the globs match the copy too."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from pathlib import Path

import pytest

from agents.inputs.copies import RECENT_BYTES, named_after
from agents.inputs.tail import Tail
from agents.inputs.values import Chunk
from tests.support.files import drain, lines, write


def follow(folder: Path, *, of: Tail | None = None) -> Tail:
    """A new tail, as the first start or as the next one after ``of`` was killed."""
    positions = () if of is None else of.positions()
    if of is not None:
        of.close()
    return Tail([str(folder / "a.log*")], positions=positions, rotate_wait_secs=1)


def numbered(first: int, count: int) -> str:
    return "".join(f"2026-01-01T00:00:00 line {number}\n" for number in range(first, first + count))


@pytest.mark.parametrize("count", [1, 20, 5_000])
@pytest.mark.parametrize("seen_before_the_checkpoint", [False, True])
@pytest.mark.parametrize("killed", ["", "before", "after"])
def test_the_copy_goes_on_where_the_original_had_been_read_to(
    tmp_path: Path, *, count: int, seen_before_the_checkpoint: bool, killed: str
) -> None:
    log, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    write(log, numbered(0, count))
    tail = follow(tmp_path)
    found = drain(tail, 0)
    write(log, numbered(count, 3))
    shutil.copy(log, copy)
    if seen_before_the_checkpoint:
        chunk = tail.read(40, 1000)
        found += [] if chunk is None else [chunk]
        assert all(position.path == str(log) for position in tail.positions() if position.source)
    if killed == "before":
        tail = follow(tmp_path, of=tail)
    os.truncate(log, 0)
    write(log, numbered(count + 3, 2))
    if killed == "after":
        tail = follow(tmp_path, of=tail)
    found += drain(tail, 1100) + drain(tail, 3000)
    tail = follow(tmp_path, of=tail)
    found += drain(tail, 4000)
    assert sorted(lines(found)) == sorted(numbered(0, count + 5).splitlines())
    assert tail.counters.lost_bytes == 0
    tail.close()


def test_what_was_read_between_the_copy_and_the_cut_is_not_read_again(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, numbered(0, 10))
    tail = follow(tmp_path)
    found = drain(tail, 0)
    shutil.copy(log, tmp_path / "a.log.1")
    write(log, numbered(10, 5))
    found += drain(tail, 10)
    os.truncate(log, 0)
    found += drain(tail, 20) + drain(tail, 3000)
    assert lines(found) == numbered(0, 15).splitlines()
    tail.close()


def test_two_logs_that_begin_alike_are_two_logs(tmp_path: Path) -> None:
    log, other = tmp_path / "a.log", tmp_path / "a.log.other"
    write(log, numbered(0, 100))
    tail = follow(tmp_path)
    found = drain(tail, 0)
    write(other, numbered(0, 99))
    assert drain(tail, 1000) == []  # so far it is a copy, maybe one that is being made
    write(other, "another line\n")
    found += drain(tail, 1100)
    assert lines(found) == [*numbered(0, 100).splitlines(), *numbered(0, 99).splitlines(), "another line"]
    os.truncate(log, 0)
    assert drain(tail, 3000) == []
    tail.close()


def test_a_log_of_another_name_is_no_copy_whatever_it_says(tmp_path: Path) -> None:
    write(tmp_path / "a.log", numbered(0, 100))
    tail = Tail([str(tmp_path / "*.log")])
    drain(tail, 0)
    write(tmp_path / "b.log", numbered(0, 100))
    assert len(lines(drain(tail, 1000))) == 100
    tail.close()


def test_a_copy_that_replaces_the_original_goes_on_too(tmp_path: Path) -> None:
    """``mv`` to another disk is a copy and a deletion."""
    log = tmp_path / "a.log"
    write(log, numbered(0, 100))
    tail = follow(tmp_path)
    found = drain(tail, 0)
    write(log, numbered(100, 5))
    shutil.copy(log, tmp_path / "a.log.1")
    tail = follow(tmp_path, of=tail)
    log.unlink()
    for now in (0, 1000, 2500, 4000):
        found += drain(tail, now)
    assert lines(found) == numbered(0, 105).splitlines()
    tail.close()


def test_a_copy_over_an_older_one_in_the_same_file(tmp_path: Path) -> None:
    log, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    tail, found, written = follow(tmp_path), list[Chunk](), 0
    for now in range(0, 30_000, 3_000):
        write(log, numbered(written, 50))
        found += drain(tail, now)
        write(log, numbered(written + 50, 2))
        written += 52
        shutil.copy(log, copy)
        os.truncate(log, 0)
    found += drain(tail, 30_000)
    assert sorted(lines(found)) == sorted(numbered(0, written).splitlines())
    tail.close()


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: b"BZh" + data])
def test_a_file_that_is_compressed_is_known_by_its_first_bytes_and_not_by_its_absence(
    tmp_path: Path, pack: object
) -> None:
    packed = tmp_path / "a.log.gz"
    packed.touch()
    tail = follow(tmp_path)
    assert drain(tail, 0) == []
    data = pack(b"one\ntwo\n" * 1000)  # type: ignore[operator]
    packed.write_bytes(data[:1])
    assert drain(tail, 100) == []
    packed.write_bytes(data + b"\n")
    assert drain(tail, 200) == []
    assert drain(tail, 2000) == []
    assert tail.counters.problems == {str(packed): "compressed: not followed"}
    assert all(position.finished for position in tail.positions())
    tail.close()


def test_an_empty_file_that_is_deleted_is_let_go_of(tmp_path: Path) -> None:
    (tmp_path / "a.log").touch()
    tail = follow(tmp_path)
    drain(tail, 0)
    (tmp_path / "a.log").unlink()
    drain(tail, 1000)
    drain(tail, 3000)
    assert tail.counters.vanished == 1
    tail.close()


@pytest.mark.parametrize(
    ("copy", "original", "named"),
    [
        ("/l/access.log.1", "/l/access.log", True),
        ("/l/access.log-20260101", "/l/access.log", True),
        ("/old/access.log", "/l/access.log", True),
        ("/l/access-20260101.log", "/l/access.log", True),
        ("/l/access.1.log", "/l/access.log", True),
        ("/l/access.log", "/l/access.log", False),
        ("/l/access.log", "/l/access.log.1", False),
        ("/l/access-ssl.log", "/l/access.log", False),
        ("/l/error.log", "/l/access.log", False),
    ],
)
def test_what_rotation_calls_copies(copy: str, original: str, named: bool) -> None:
    assert named_after(copy, original) is named


@pytest.mark.parametrize("seed", range(8))
def test_any_history_of_copying_cutting_and_restarting_gives_every_line_once(
    tmp_path: Path, seed: int
) -> None:
    """Copies as long as ``RECENT_BYTES`` and longer, a random reader, restarts, copies that are renamed."""
    rng = random.Random(seed)
    log = tmp_path / "a.log"
    log.touch()
    tail, found, written, now = follow(tmp_path), list[Chunk](), 0, 0
    for _ in range(150):
        now += rng.randrange(700)
        match rng.randrange(6):
            case 0 | 1 | 2:
                count = rng.choice([1, 3, RECENT_BYTES // 20])
                write(log, numbered(written, count))
                written += count
            case 3:
                chunk = tail.read(rng.choice([10, 1_000, 1 << 20]), now)
                found += [] if chunk is None else [chunk]
            case 4:
                found += drain(tail, now := now + 1000)  # a rename of the copy is noticed by a scan
                for number in range(5, 0, -1):
                    if (old := tmp_path / f"a.log.{number}").exists():
                        old.rename(tmp_path / f"a.log.{number + 1}")
                count = rng.choice([0, 2])
                write(log, numbered(written, count))
                written += count
                shutil.copy(log, tmp_path / "a.log.1")
                for _ in range(rng.randrange(3)):
                    chunk = tail.read(rng.choice([10, 1_000]), now := now + 500)
                    found += [] if chunk is None else [chunk]
                os.truncate(log, 0)
            case 5:
                tail = follow(tmp_path, of=tail)
    found += drain(tail, now + 1000) + drain(tail, now + 5000) + drain(tail, now + 9000)
    assert sorted(lines(found)) == sorted(numbered(0, written).splitlines())
    assert tail.counters.lost_bytes == 0
    tail.close()
