"""What is received: on the disk before it is acknowledged, and read once, whenever the agent is killed."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest

from agents.disk.room import is_refusal
from agents.inputs.spool import Spool
from agents.inputs.spooled import DAMAGED, FEW, FULL, GONE, PACE_MS, SILENT_MS, Spooled, begins_at
from agents.inputs.values import Chunk, Position
from elf.errors import InputError
from tests.support.files import drain, lines

BYTES_MAX = 1 << 20


def opened(folder: Path, positions: tuple[Position, ...] = (), bytes_max: int = BYTES_MAX) -> Spooled:
    spool = Spool(folder, bytes_max=bytes_max, begin=begins_at("s", positions), linger_s=0)
    return Spooled("s", spool, max_line_bytes=100, positions=positions)


def put(read: Spooled, origin: str, *texts: str, key: bytes = b"") -> None:
    """Durably."""
    taken(read.spool.take(origin, "".join(f"{text}\n" for text in texts).encode(), key)).result(10)


def taken(future: Future[None] | None) -> Future[None]:
    assert future is not None
    return future


def by_origin(chunks: list[Chunk]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for chunk in chunks:
        found.setdefault(chunk.source.log, []).extend(chunk.lines.to_pylist())
    return found


def test_a_block_is_a_chunk_an_origin_and_offsets_are_those_of_the_spool(tmp_path: Path) -> None:
    read = opened(tmp_path / "spool")
    for number in range(3):
        put(read, "a", f"a{number}")
        put(read, "b", f"b{number}", f"c{number}")
    first = read.read(1 << 20, 0)
    assert first is not None
    assert (first.lines.to_pylist(), first.source.path, read.has_new_sources) == (
        ["a0", "a1", "a2"],
        "a",
        True,
    )
    chunks = [first, *drain(read, 0)]
    assert by_origin(chunks) == {"a": ["a0", "a1", "a2"], "b": ["b0", "c0", "b1", "c1", "b2", "c2"]}
    assert not read.has_new_sources
    contents = b"".join(path.read_bytes() for path in sorted((tmp_path / "spool").iterdir()))
    for chunk in chunks:
        for offset, text in zip(chunk.offsets, chunk.lines.to_pylist(), strict=True):
            assert contents[offset : offset + len(text)].decode() == text
    assert sum(chunk.end - chunk.start for chunk in chunks) == len(contents)
    assert read.unread == 0
    put(read, "a", "more")
    (after,) = drain(read, 0)
    assert after.offsets[0] >= first.end
    read.close()


def test_many_origins_are_read_in_larger_blocks(tmp_path: Path) -> None:
    """A chunk costs the same however few lines it has."""
    read = opened(tmp_path)
    for _ in range(2):
        for number in range(50):
            put(read, f"o{number}", "text")
        assert len(drain(read, 0)) in (50, 0)
    wait_ms = PACE_MS * (50 - FEW)
    assert drain(read, wait_ms - 1) == []
    assert len(drain(read, wait_ms)) == 50
    put(read, "o1", "more")
    assert len(drain(read, wait_ms, bytes_max=1)) == 1, "what is asked for is there"
    read.close()


def test_what_is_no_line_is_rejected_where_it_stands(tmp_path: Path) -> None:
    read = opened(tmp_path)
    put(read, "a", "good", "x" * 101, "nul\0")
    taken(read.spool.take("a", b"\xff\nbetter\n")).result(10)
    (chunk,) = drain(read, 0)
    assert lines([chunk]) == ["good", "better"]
    contents = next(tmp_path.iterdir()).read_bytes()
    assert [contents[one.offset : one.offset + 2] for one in chunk.rejects] == [b"xx", b"nu", b"\xff\n"]
    read.close()


def test_a_spool_is_bounded_and_makes_room_when_a_checkpoint_has_passed(tmp_path: Path) -> None:
    read, text = opened(tmp_path, bytes_max=80_000), "x" * 90
    count = 0
    while (done := read.spool.take("a", f"{text}\n".encode() * 10)) is not None:
        done.result(10)
        count += 10
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 80_000
    assert len(list(tmp_path.iterdir())) > 4
    assert not read.spool.has_room
    assert len(lines(drain(read, 0))) == count
    assert not read.spool.has_room, "what is read, and in no checkpoint, may be read again"
    read.kept(read.positions())
    assert read.spool.has_room
    assert len(list(tmp_path.iterdir())) == 1
    put(read, "a", "more")
    assert lines(drain(read, 0)) == ["more"]
    read.close()


def test_a_loss_is_told_in_its_place_and_once(tmp_path: Path) -> None:
    read = opened(tmp_path)
    put(read, "a", "before")
    read.spool.lost("b", 2, 40)
    read.spool.lost("b", 1, 2)
    put(read, "a", "behind")
    assert lines(drain(read, 0)) == ["before", "behind"]
    (gap,) = read.gaps()
    assert (gap.path, gap.bytes, gap.why) == ("b", 42, FULL)
    assert read.counters.lost_bytes == 42
    again = opened(tmp_path, read.positions())
    assert (drain(again, 0), again.gaps()) == ([], ())
    read.close()
    again.close()


def test_what_has_a_key_is_taken_once_also_when_it_is_long_gone(tmp_path: Path) -> None:
    read = opened(tmp_path, bytes_max=20_000)
    put(read, "a", "one", key=b"k1")
    for number in range(60):
        put(read, "a", "x" * 90, key=b"other%d" % number)
        drain(read, 0)
        read.kept(read.positions())
    assert not (tmp_path / f"{0:020d}.spool").exists()
    read.close()
    again = opened(tmp_path, read.positions(), bytes_max=20_000)
    put(again, "a", "one", key=b"k1")
    put(again, "a", "two", key=b"k2")
    assert lines(drain(again, 0)) == ["two"]
    assert again.spool.repeated == 1
    again.close()


def test_a_silent_origin_is_no_source_any_more(tmp_path: Path) -> None:
    read = opened(tmp_path)
    put(read, "a", "one")
    drain(read, 0)
    again = opened(tmp_path, read.positions())
    drain(again, 5)
    assert (drain(again, 4 + SILENT_MS), again.finished()) == ([], ())
    drain(again, 5 + SILENT_MS)
    assert again.finished() == ("spool:s:a",)
    assert len(again.positions()) == 1
    read.close()
    again.close()


def test_a_torn_end_is_cut_off_and_damage_is_a_gap(tmp_path: Path) -> None:
    read = opened(tmp_path, bytes_max=20_000)
    for number in range(60):
        put(read, "a", f"{number:090d}")
    read.close()
    first, *_, last = sorted(tmp_path.iterdir())
    with last.open("ab") as file:
        file.write(b"torn by a crash")
    data = bytearray(first.read_bytes())
    data[300] ^= 1
    first.write_bytes(data)
    again = opened(tmp_path, bytes_max=20_000)
    put(again, "a", "behind")
    found = lines(drain(again, 0))
    (gap,) = again.gaps()
    assert gap.why == DAMAGED
    assert found[-1] == "behind"
    assert [int(text) for text in found[:-1]] == [*range(2), *range(60 - len(found) + 3, 60)]
    again.close()


def test_what_is_behind_damage_in_the_last_segment_is_read_and_keys_are_known(tmp_path: Path) -> None:
    """Whether the damaged byte is of a text, or of a size; offsets never come again."""
    for place, at in enumerate((70, 14, 12, 130)):
        folder = tmp_path / f"{place}"
        read = opened(folder)
        for number in range(3):
            put(read, "a", f"{number:030d}", key=b"k%d" % number)
        end = read.spool.durable
        read.close()
        (path,) = folder.iterdir()
        data = bytearray(path.read_bytes())
        data[at] ^= 0x41
        path.write_bytes(data)
        again = opened(folder)
        assert again.spool.durable >= end
        put(again, "a", "new")
        put(again, "a", "new", key=b"k2" if at < 100 else b"k0")
        found = lines(drain(again, 0))
        assert (found[-1], len(found)) == ("new", 3)
        (gap,) = again.gaps()
        assert (gap.why, gap.bytes) == (DAMAGED, end // 3)
        again.close()


def test_a_spool_whose_end_is_gone_goes_on_behind_the_checkpoint(tmp_path: Path) -> None:
    read = opened(tmp_path)
    for number in range(3):
        put(read, "a", f"{number}", key=b"k%d" % number)
    drain(read, 0)
    place = read.positions()
    read.close()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    again = opened(tmp_path, place)
    assert again.spool.durable >= place[0].offset
    put(again, "a", "0", key=b"k0")
    put(again, "a", "new")
    assert lines(drain(again, 0)) == ["new"]
    again.close()
    third = opened(tmp_path, place)
    assert lines(drain(third, 0)) == ["new"]
    third.close()


def test_a_kill_while_a_segment_begins_loses_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = opened(tmp_path, bytes_max=8_000)
    put(read, "a", "one", key=b"k1")
    put(read, "a", "x" * 1_000, "fills the segment")

    def killed(file: int, data: bytes) -> None:
        os.write(file, data[: len(data) // 2])
        raise OSError(5, "killed")

    with monkeypatch.context() as patched:
        patched.setattr("agents.inputs.spool._write", killed)
        with pytest.raises(OSError, match="killed"):
            put(read, "a", "never acknowledged")
    read.close()
    again = opened(tmp_path, bytes_max=8_000)
    put(again, "a", "one", key=b"k1")
    put(again, "a", "two")
    assert lines(drain(again, 0))[0] == "one"
    assert again.spool.repeated == 1
    again.close()


def test_what_was_lost_before_a_clean_end_is_told(tmp_path: Path) -> None:
    read = opened(tmp_path)
    read.spool.lost("b", 2, 40)
    read.close()
    again = opened(tmp_path)
    assert drain(again, 0) == []
    (gap,) = again.gaps()
    assert (gap.path, gap.bytes, gap.why) == ("b", 40, FULL)
    again.close()


def test_a_spool_that_was_removed_goes_on_behind_it(tmp_path: Path) -> None:
    read = opened(tmp_path / "spool")
    put(read, "a", "one")
    drain(read, 0)
    place = read.positions()
    put(read, "a", "never read")
    read.close()
    shutil.rmtree(tmp_path / "spool")
    again = opened(tmp_path / "spool", place)
    put(again, "a", "two")
    (chunk,) = drain(again, 0)
    assert (lines([chunk]), again.gaps()) == (["two"], ())
    assert chunk.offsets[0] >= place[0].offset
    again.close()
    third = opened(tmp_path / "spool")
    assert lines(drain(third, 0)) == ["two"]
    third.close()
    assert GONE


def test_a_disk_that_refuses_ends_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = opened(tmp_path)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space"):
        put(read, "a", "one")
    assert read.spool.take("a", b"two\n") is None
    with pytest.raises(InputError, match=r"cannot write to the spool .*: No space") as raised:
        read.read(1, 0)
    assert is_refusal(raised.value), "the agent waits for room"
    read.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_history_of_crashes_gives_what_was_acknowledged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A crash leaves the disk as it is, with a torn record perhaps; lines that were counted after the last
    checkpoint are counted no more; what was not acknowledged is sent again, and some of what was."""
    monkeypatch.setattr(os, "fdatasync", lambda file: None)  # the copy of a folder has what is not synced too
    rng = random.Random(seed)
    life, number = 0, 0
    positions: tuple[Position, ...] = ()
    read = opened(tmp_path / "0", bytes_max=60_000)
    counted: list[str] = []
    stored: list[str] = []
    sent: dict[str, Future[None]] = {}

    def send(text: str) -> None:
        done = read.spool.take(text.partition(" ")[0], f"{text}\n".encode(), text.encode())
        if done is not None:
            sent[text] = done

    for _ in range(400):
        what = rng.random()
        if what < 0.5:
            send(f"o{rng.randrange(4)} {number}")
            number += 1
        elif what < 0.8:
            chunk = read.read(rng.choice([1, 200, 4_000]), 0)
            counted += lines([chunk]) if chunk is not None else []
        elif what < 0.95:
            positions, stored = read.positions(), list(counted)
            read.kept(positions)
        else:
            again = [text for text, done in sent.items() if not done.done() or rng.random() < 0.05]
            life += 1
            shutil.copytree(tmp_path / f"{life - 1}", tmp_path / f"{life}")
            read.close()
            with sorted((tmp_path / f"{life}").iterdir())[-1].open("ab") as file:
                file.write(rng.randbytes(rng.randrange(40)))
            read, counted = opened(tmp_path / f"{life}", positions, bytes_max=60_000), list(stored)
            for text in again:
                send(text)
    for done in sent.values():
        done.result(10)
    counted += lines(drain(read, 0))
    assert Counter(counted) == Counter(sent.keys())
    assert read.counters.lost_bytes == 0
    read.close()
