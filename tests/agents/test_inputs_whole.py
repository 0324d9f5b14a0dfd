"""Finite inputs: each line once, however they are spread; what cannot be read says so."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.inputs.ranges import Range, split_inputs
from agents.inputs.whole import Whole
from agents.tasks.samples import sample_lines
from elf.errors import InputError


def lines_of(ranges: list[Range] | list[str], **more: int) -> list[str]:
    whole = Whole(ranges, **more)
    found: list[str] = []
    while (chunk := whole.read(1 << 16, 0)) is not None:
        found += chunk.lines.to_pylist()
    assert whole.exhausted
    whole.close()
    return found


def test_files_are_read_one_after_the_other_and_then_it_is_exhausted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\r\ntwo")
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(b"three\n")
    whole = Whole([str(tmp_path / name) for name in "abc"])
    first = whole.read(100, 0)
    assert first is not None
    assert first.lines.to_pylist() == ["one"]
    second = whole.read(100, 0)
    assert second is not None
    assert (second.lines.to_pylist(), second.at_end, whole.exhausted) == (["two"], True, False)
    third = whole.read(100, 0)
    assert third is not None
    assert third.lines.to_pylist() == ["three"]
    assert whole.read(100, 0) is None
    assert whole.exhausted
    assert len(whole.finished()) == 3
    assert sum(chunk.end - chunk.start for chunk in (first, second, third)) == 14


def test_a_file_given_twice_is_two_sources(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    whole = Whole([str(tmp_path / "a")] * 2)
    chunks = [whole.read(100, 0), whole.read(100, 0)]
    assert len({chunk.source.id for chunk in chunks if chunk is not None}) == 2
    whole.close()


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_path_that_cannot_be_read_is_one_clear_line(tmp_path: Path, what: str) -> None:
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / what)
    for act in (lambda: Whole([path]), lambda: split_inputs([path], 2), lambda: sample_lines([path])):
        with pytest.raises(InputError, match=f"^input {path}: [a-z, ]+$"):
            act()


def test_a_path_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="permission denied"):
        Whole([str(tmp_path / "a")])


def test_a_file_that_vanishes_before_its_turn_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    (tmp_path / "b").write_bytes(b"two\n")
    whole = Whole([str(tmp_path / "a"), str(tmp_path / "b")])
    (tmp_path / "a").unlink()
    chunk = whole.read(100, 0)
    assert chunk is not None
    assert chunk.lines.to_pylist() == ["two"]
    assert whole.counters.vanished == 1
    assert "No such file" in whole.counters.problems[str(tmp_path / "a")]
    whole.close()


def test_gzip_is_read_whatever_its_name_and_in_several_members(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree"))
    assert lines_of([str(path)]) == ["one", "two", "three"]
    assert sample_lines([str(path)]) == ["one", "two", "three"]


def test_a_damaged_gzip_gives_the_lines_before_the_damage_and_is_named(tmp_path: Path) -> None:
    rows = [f"line {number} {number * 7919 % 1000003}" for number in range(60_000)]
    packed = gzip.compress("\n".join(rows).encode())
    path = tmp_path / "cut.gz"
    path.write_bytes(packed[: len(packed) // 2])
    (tmp_path / "next").write_bytes(b"fine\n")
    whole = Whole([str(path), str(tmp_path / "next")])
    found: list[str] = []
    while (chunk := whole.read(1 << 16, 0)) is not None:
        found += chunk.lines.to_pylist()
    # The last line before the damage may be a piece of one.
    assert len(found) > 1000
    assert found[:-2] == rows[: len(found) - 2]
    assert found[-1] == "fine"
    assert whole.counters.failed == 1
    assert "end-of-stream" in whole.counters.problems[str(path)]


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_bytes(b"one\ntwo\n"))
    assert sample_lines([str(path)]) == []
    ((item,), others) = split_inputs([str(path)], 2)
    assert others == []
    writer.start()
    assert lines_of([item]) == ["one", "two"]
    writer.join()


def test_a_huge_last_line_without_end_is_rejected_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one\n" + b"x" * (10 << 20))
    whole = Whole([str(path)], max_line_bytes=1 << 20)
    chunks = [whole.read(1 << 16, 0), whole.read(1 << 16, 0)]
    assert whole.read(1 << 16, 0) is None
    assert chunks[1] is not None
    (reject,) = chunks[1].rejects
    assert (reject.offset, reject.length, len(reject.data)) == (4, 10 << 20, 64 << 10)


def test_whole_files_go_to_agents_balanced_by_size(tmp_path: Path) -> None:
    sizes = {"a": 90, "b": 50, "c": 40, "d": 30}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    shares = split_inputs([str(tmp_path / name) for name in sizes], 2)
    loads = sorted(sum(sizes[Path(item.path).name] for item in share) for share in shares)
    assert loads == [90, 120]
    assert all(item == Range(item.path) for share in shares for item in share)


def test_whole_files_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\n" * 100)
    shares = split_inputs([str(tmp_path / "a")], 3, whole_files=True)
    assert sorted(map(len, shares)) == [0, 0, 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spread")


@given(
    files=st.lists(st.lists(st.integers(0, 30), max_size=60), min_size=1, max_size=3),
    packed=st.booleans(),
    parts=st.integers(1, 9),
    last=st.booleans(),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_inputs_are_spread_every_line_is_read_once(
    folder: Path, files: list[list[int]], packed: bool, parts: int, last: bool
) -> None:
    expected: list[str] = []
    paths: list[str] = []
    for number, lengths in enumerate(files):
        rows = [f"{number}.{row}{'x' * length}" for row, length in enumerate(lengths)]
        expected += rows
        data = ("\n".join(rows) + ("\n" if last and rows else "")).encode()
        path = folder / f"file{number}"
        path.write_bytes(gzip.compress(data) if packed and number == 0 else data)
        paths.append(str(path))
    shares = split_inputs(paths, parts)
    assert len(shares) == parts
    assert sorted(line for share in shares for line in lines_of(share)) == sorted(expected)


def test_a_big_file_is_cut_into_equal_ranges(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789\n" * 1000)
    shares = split_inputs([str(path)], 4)
    counts = [len(lines_of(share)) for share in shares]
    assert sum(counts) == 1000
    assert max(counts) - min(counts) <= 1


def test_samples_come_from_all_over_a_file(tmp_path: Path) -> None:
    for count in (5000, 400_000):
        path = tmp_path / f"a{count}"
        path.write_text("".join(f"{number}\n\n" for number in range(count)))
        numbers = [int(line) for line in sample_lines([str(path)], 300)]
        assert numbers == sorted(numbers)
        assert len(numbers) == 300
        assert numbers[0] == 0
        assert numbers[-1] == count - 1
        for tenth in range(10):
            there = sum(tenth * count <= 10 * number < (tenth + 1) * count for number in numbers)
            assert 20 <= there <= 40
        assert {str(number) for number in numbers} <= set(path.read_text().split())
