"""Logs that are rotated while nobody looks: what is there is read once, what is gone is named."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.inputs.tail import Tail
from agents.inputs.values import Chunk, Position
from elf.job.gaps import Missed
from tests.support.files import lines, write, zstd

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstd,
}


class Site:
    """A web server's log folder on a clock of its own, and the agent that reads it."""

    def __init__(self, folder: Path, include: str, *, packs: str = "gz") -> None:
        self.log = folder / "access.log"
        self.now_ms = 1_000_000
        self.numbered = 0
        self.written: list[str] = []
        self.found: list[Chunk] = []
        self.gaps: list[Missed] = []
        self.told_at: list[int] = []
        """How many chunks there were when each gap was told."""
        self._include = include
        self._packs = packs
        self.log.touch()
        self.stamp(self.log)
        self.tail = self._tail(())
        self.last_checkpoint: tuple[tuple[Position, ...], int, int] = (), 0, 0

    def _tail(self, positions: tuple[Position, ...]) -> Tail:
        return Tail([str(self.log.with_name(self._include))], positions=positions, rotate_wait_secs=1)

    def stamp(self, path: Path) -> None:
        os.utime(path, ns=(0, self.now_ms * 1_000_000))

    def write(self, count: int, to: Path | None = None) -> None:
        first, self.numbered = self.numbered, self.numbered + count
        more = [
            f"2026-01-01T00:00:00 row {number} {'x' * (number % 40)}"
            for number in range(first, first + count)
        ]
        self.written += more
        self.now_ms += 10
        write(to or self.log, "".join(f"{line}\n" for line in more))
        self.stamp(to or self.log)

    def read(self, *, for_ms: int = 3_000) -> None:
        for _ in range(0, for_ms, 250):
            self.now_ms += 250
            while True:
                chunk = self.tail.read(1 << 20, self.now_ms)
                self._take(chunk)
                if chunk is None:
                    break

    def glance(self, bytes_max: int) -> None:
        self._take(self.tail.read(bytes_max, self.now_ms))

    def _take(self, chunk: Chunk | None) -> None:
        gaps = self.tail.gaps()
        self.told_at += [len(self.found)] * len(gaps)
        self.gaps += gaps
        self.found += [] if chunk is None else [chunk]

    def cut(self) -> None:
        self.last_checkpoint = self.tail.positions(), len(self.found), len(self.gaps)

    def crash(self) -> None:
        """What came after the last cut is forgotten; the next start goes on from there."""
        positions, chunks, gaps = self.last_checkpoint
        del self.found[chunks:], self.gaps[gaps:], self.told_at[gaps:]
        self.tail.close()
        self.tail = self._tail(positions)

    def kill(self) -> None:
        """Right after a cut."""
        self.cut()
        self.crash()

    def rotate(self, *, keep: int = 20, delay: bool = False, copy: bool = False, dated: bool = False) -> None:
        """As logrotate does it: what was rotated before moves up, the log is renamed, or copied and cut."""
        self.now_ms += 10
        if dated:
            target = self.log.with_name(f"access.log-20260101-{self.now_ms}")
        else:
            target = self.log.with_name("access.log.1")
            for number in range(keep, 0, -1):
                for end in ("", f".{self._packs}"):
                    old = self.log.with_name(f"access.log.{number}{end}")
                    if old.exists() and number == keep:
                        old.unlink()
                    elif old.exists():
                        old.rename(self.log.with_name(f"access.log.{number + 1}{end}"))
        if copy:
            shutil.copyfile(self.log, target)
            self.stamp(target)
            os.truncate(self.log, 0)
            self.stamp(self.log)
        else:
            self.log.rename(target)
            self.log.touch()
            self.stamp(self.log)
        for old in sorted(self.log.parent.glob("access.log[.-]*")):
            if old.suffix != f".{self._packs}" and not (delay and old == target):
                self.pack(old)

    def pack(self, path: Path) -> None:
        status = path.stat()
        packed = path.with_name(f"{path.name}.{self._packs}")
        packed.write_bytes(PACK[self._packs](path.read_bytes()))
        os.utime(packed, ns=(0, status.st_mtime_ns))
        path.unlink()

    def check(self) -> None:
        """Each row once, in the order in which they were written."""
        assert lines(self.found) == self.written

    def missing(self) -> list[int]:
        """Rows that nobody has read, each of which a gap names; no row was read twice."""
        found = [number_of(line) for line in lines(self.found)]
        assert len(found) == len(set(found))
        missing = sorted({number_of(line) for line in self.written} - set(found))
        spans = [self._span(gap, at) for gap, at in zip(self.gaps, self.told_at, strict=True)]
        unnamed = [row for row in missing if not any(low < row < high for low, high in spans)]
        assert unnamed == []
        return missing

    def _span(self, gap: Missed, at: int) -> tuple[int, int]:
        """Between which rows the gap is: the last one of its source, and the first one that came later."""
        before = [
            number_of(line)
            for chunk in self.found[:at]
            if chunk.source.id == gap.source
            for line in lines([chunk])
        ]
        after = [number_of(line) for line in lines(self.found[at : at + 1])] if gap.ended else []
        return max(before, default=-1), min(after, default=self.numbered)


def number_of(line: str) -> int:
    return int(line.split()[2])


@pytest.mark.parametrize("include", ["access.log", "access.log*"])
@pytest.mark.parametrize("packs", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("rotations", [1, 2, 3])
@pytest.mark.parametrize("how", ["rename", "delay", "dated", "copy"])
@pytest.mark.parametrize("read_before", [0, 3])
def test_rotations_while_the_agent_is_down(
    tmp_path: Path, include: str, packs: str, rotations: int, how: str, read_before: int
) -> None:
    site = Site(tmp_path, include, packs=packs)
    site.write(50)
    site.rotate()
    site.kill()  # the first start: what was rotated before is not ours, but for a pattern that says so
    site.written.clear()
    site.write(read_before)
    site.read()
    site.write(200)
    site.cut()
    for _ in range(rotations):
        site.write(100)
        site.rotate(delay=how == "delay", dated=how == "dated", copy=how == "copy")
    site.write(10)
    site.crash()
    site.read(for_ms=6_000)
    site.check()
    if how != "copy":
        assert site.gaps == []
    site.kill()
    site.rotate()
    site.write(5)
    site.read(for_ms=6_000)
    site.check()
    site.tail.close()


@pytest.mark.parametrize("keep", [20, 3, 1])
@pytest.mark.parametrize("include", ["access.log", "access.log*"])
@pytest.mark.parametrize("seed", range(12))
def test_any_history_gives_every_row_once_or_names_its_gap(
    tmp_path: Path, seed: int, include: str, keep: int
) -> None:
    """Rotations of all kinds, a reader that stands still, crashes and outages. Where few are kept (``keep``),
    files are gone before anybody has read them."""
    rng = random.Random(seed * 100 + keep)
    packs = rng.choice(["gz", "gz", "xz"])
    site = Site(tmp_path, include, packs=packs)
    style = (
        rng.choice(["rename", "delay", "dated", "copy"]) if keep == 20 else rng.choice(["rename", "delay"])
    )
    site.read(for_ms=250)
    site.cut()
    for _ in range(120):
        site.now_ms += rng.randrange(400)
        match rng.randrange(8):
            case 0 | 1 | 2:
                site.write(rng.choice([1, 5, 300]))
            case 3:
                site.glance(rng.choice([10, 1_000, 1 << 20]))
            case 4:
                site.read(for_ms=rng.choice([250, 3_000]))
            case 5:
                site.cut()
            case 6:
                site.now_ms += 0 if keep == 20 else 3_500  # two rotations that nobody saw are a while ago
                site.rotate(keep=keep, delay=style == "delay", dated=style == "dated", copy=style == "copy")
            case 7:
                site.crash()
    site.read(for_ms=30_000)
    missing = site.missing()
    if keep == 20:
        assert missing == []
        # A log that was empty, has no older file beside it, and is compressed by now could be any of them.
        assert style == "copy" or [gap for gap in site.gaps if gap.source] == []
    site.tail.close()


@pytest.mark.parametrize("include", ["access.log", "access.log*"])
def test_a_copy_and_what_is_compressed_of_it_are_read_once(tmp_path: Path, include: str) -> None:
    """``copytruncate`` and ``compress``: both are there for a moment."""
    site = Site(tmp_path, include)
    site.write(100)
    site.read()
    site.write(50)
    copy = site.log.with_name("access.log.1")
    shutil.copyfile(site.log, copy)
    site.stamp(copy)
    packed = copy.with_name("access.log.1.gz")
    packed.write_bytes(gzip.compress(copy.read_bytes()))
    os.utime(packed, ns=(0, copy.stat().st_mtime_ns))
    os.truncate(site.log, 0)
    site.write(5)
    site.read(for_ms=1_000)
    copy.unlink()
    site.read(for_ms=30_000)
    site.check()
    site.tail.close()


@pytest.mark.parametrize("packed", [False, True])
def test_that_a_log_was_cut_is_known_after_another_death(tmp_path: Path, packed: bool) -> None:
    """What was written between the copy and the cut nobody has. The copy is read, that is written down, and
    the agent dies before it has come to its end."""
    site = Site(tmp_path, "access.log*")
    site.write(20)
    site.read()
    site.kill()
    site.write(20)
    site.rotate(copy=True, delay=True)
    site.write(5)
    site.glance(400)
    assert site.found[-1].source.path.endswith(".1")
    site.kill()
    assert site.gaps == []
    if packed:
        site.pack(tmp_path / "access.log.1")
    site.read()
    site.check()
    assert [gap.bytes for gap in site.gaps] == [None]
    assert "between the copy and the cut" in site.gaps[0].why


@pytest.mark.parametrize("include", ["access.log", "access.log*"])
def test_what_moves_up_while_the_agent_stands_still_is_no_gap(tmp_path: Path, include: str) -> None:
    """A file that is open was packed, and another one has its name."""
    site = Site(tmp_path, include)
    site.write(20)
    site.read()
    site.rotate(delay=True)
    site.write(20)
    site.read(for_ms=500)
    site.now_ms += 5_000
    site.rotate(delay=True)
    site.write(20)
    site.read(for_ms=8_000)
    site.check()
    assert site.gaps == []


def test_a_start_between_the_copy_and_the_cut(tmp_path: Path) -> None:
    """The log was cut once before, so neither it nor the copy is known: the copy is its beginning."""
    site = Site(tmp_path, "access.log")
    site.write(20)
    site.read()
    site.kill()
    site.rotate(copy=True, delay=True)
    site.write(20)
    site.read()
    site.crash()
    site.now_ms += 10
    shutil.copyfile(site.log, tmp_path / "access.log.1")
    site.stamp(tmp_path / "access.log.1")
    site.write(3)
    site.read(for_ms=500)
    os.truncate(site.log, 0)
    site.stamp(site.log)
    site.write(3)
    site.read()
    site.check()


def test_a_copy_that_is_packed_at_once_is_read_once(tmp_path: Path) -> None:
    """Between two looks a log is cut and its copy packed: the copy is open, and what is packed is new."""
    site = Site(tmp_path, "access.log*")
    site.write(20)
    site.read()
    copy = tmp_path / "access.log-20260101"
    site.now_ms += 10
    shutil.copyfile(site.log, copy)
    site.stamp(copy)
    site.write(2)
    site.read(for_ms=1_500)
    os.truncate(site.log, 0)
    site.stamp(site.log)
    site.pack(copy)
    site.read(for_ms=500)
    site.write(3)
    site.read()
    site.check()


def test_a_rotated_file_that_was_open_is_found_when_it_is_packed(tmp_path: Path) -> None:
    """The agent knows it by its name of then, which the pattern matches, and dies while it is packed."""
    site = Site(tmp_path, "access.log*")
    site.write(20)
    site.read()
    site.rotate(delay=True)
    site.write(20)
    site.read(for_ms=1_500)
    site.kill()
    site.pack(tmp_path / "access.log.1")
    site.write(3)
    site.read(for_ms=8_000)
    site.check()
    assert site.gaps == []


def test_a_start_while_a_log_is_not_there(tmp_path: Path) -> None:
    """It was renamed, and its server has not opened a new one yet; what was renamed before is packed."""
    site = Site(tmp_path, "access.log*")
    site.write(20)
    site.read()
    site.log.rename(tmp_path / "access.log.1")
    site.read(for_ms=1_500)
    site.cut()
    site.log.touch()
    site.pack(tmp_path / "access.log.1")
    (tmp_path / "access.log.1.gz").rename(tmp_path / "access.log.2.gz")
    site.log.rename(tmp_path / "access.log.1")
    site.crash()
    site.read(for_ms=1_500)
    site.write(3)
    site.read(for_ms=8_000)
    site.check()
    assert site.gaps == []


@pytest.mark.parametrize("include", ["access.log", "access.log*"])
@pytest.mark.parametrize("packed", [False, True])
def test_what_goes_with_each_of_several_cuts_lies_in_a_gap(
    tmp_path: Path, include: str, packed: bool
) -> None:
    site = Site(tmp_path, include)
    site.write(5)
    site.read()
    site.kill()
    for _ in range(3):
        site.write(3)
        copied = site.log.read_bytes()
        site.write(2)  # these are nowhere when the log is cut
        site.rotate(copy=True, delay=not packed)
        target = site.log.with_name("access.log.1.gz" if packed else "access.log.1")
        status = target.stat()
        target.write_bytes(gzip.compress(copied) if packed else copied)
        os.utime(target, ns=(0, status.st_mtime_ns))
    site.write(3)
    site.read()
    assert len(site.missing()) == 6
    assert len(site.gaps) == 3


def test_a_copy_that_is_shorter_than_what_is_remembered_of_its_log(tmp_path: Path) -> None:
    """The log is written and read on between the copy and the cut, and its agent dies before its next cut."""
    site = Site(tmp_path, "access.log")
    site.write(2)
    copied = site.log.read_bytes()
    assert len(copied) < 100
    site.write(2)
    site.read()
    site.kill()
    site.log.with_name("access.log.1.gz").write_bytes(gzip.compress(copied))
    site.stamp(site.log.with_name("access.log.1.gz"))
    os.truncate(site.log, 0)
    site.write(2)
    site.read()
    site.check()


def test_files_with_lines_that_have_had_no_turn_are_told(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.log").write_text("x\ny\n")
    tail = Tail([str(tmp_path / "*.log")])
    assert tail.read(2, 1_000) is not None
    assert tail.has_new_sources
    assert tail.read(2, 1_000) is not None
    assert not tail.has_new_sources
    tail.close()
