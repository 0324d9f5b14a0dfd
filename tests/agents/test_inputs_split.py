"""Splitting bytes into lines: the vectorised splitter against the obvious one, for any bytes and any chunk
size."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.inputs.ranges import Range, is_compressed
from agents.inputs.split import split
from agents.inputs.tail import Tail
from agents.inputs.values import REJECT_KEPT_BYTES, Chunk, Source
from agents.inputs.whole import Whole
from elf import native

MAX_LINE = 20


@pytest.fixture(params=["native", "numpy"], autouse=True, scope="module")
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """What is native, where that part is there, and what is done without it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "numpy":
            patch.setattr(native, "library", lambda: None)
        yield


Line = tuple[int, str]
Refused = tuple[int, str, bytes, int]


def obvious(data: bytes, *, last: bool, max_line: int = MAX_LINE) -> tuple[list[Line], list[Refused]]:
    """What the bytes of a file should come to, line by line. ``last``: an unfinished last line counts."""
    lines: list[Line] = []
    refused: list[Refused] = []
    at = 0
    while at < len(data):
        newline = data.find(b"\n", at)
        end = newline if newline >= 0 else len(data)
        if newline < 0 and not last:
            break
        start = at
        body = data[at:end]
        if newline >= 0 and body.endswith(b"\r"):
            body = body[:-1]
        if at == 0 and data.startswith(b"\xef\xbb\xbf"):
            body, start = body[3:], 3
        hole = len(body) - len(body.lstrip(b"\0"))
        body, start = body[hole:], start + hole
        at = end + 1
        try:
            text: str | None = body.decode()
        except UnicodeDecodeError:
            text = None
        if len(body) > max_line:
            refused.append((start, f"line longer than {max_line} bytes", body[:REJECT_KEPT_BYTES], len(body)))
        elif b"\0" in body:
            refused.append((start, "NUL byte", body, len(body)))
        elif text is None:
            refused.append((start, "invalid UTF-8", body, len(body)))
        else:
            lines.append((start, text))
    return lines, refused


def collected(chunks: list[Chunk]) -> tuple[list[Line], list[Refused]]:
    lines: list[Line] = []
    refused: list[Refused] = []
    for chunk in chunks:
        chunk.lines.validate(full=True)
        lines += zip(chunk.offsets.tolist(), chunk.lines.to_pylist(), strict=True)
        refused += [(reject.offset, reject.reason, reject.data, reject.length) for reject in chunk.rejects]
        assert all(chunk.start <= offset <= chunk.end for offset in chunk.offsets.tolist())
    for before, after in itertools.pairwise(chunks):
        if before.source.id == after.source.id:
            assert before.end == after.start
    return lines, refused


def read_all(source: Tail | Whole, bytes_max: int) -> list[Chunk]:
    chunks = []
    while (chunk := source.read(bytes_max, 0)) is not None:
        chunks.append(chunk)
    return chunks


PIECES = st.sampled_from(
    [
        b"a",
        b"bc ",
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\xff",
        "é".encode(),
        "é".encode()[:1],
        "😀".encode(),
        b"x" * 19,
        b"\n\n",
    ]
)
FILES = st.lists(PIECES, max_size=40).map(b"".join) | st.binary(max_size=80)


@given(FILES)
@settings(max_examples=300, deadline=None)
def test_split_is_the_obvious_splitter(data: bytes) -> None:
    found = split(Source("s", "p"), data, 0, MAX_LINE)
    lines, refused = obvious(data, last=True)
    assert list(zip(found.offsets.tolist(), found.lines.to_pylist(), strict=True)) == lines
    assert [(r.offset, r.reason, r.data, r.length) for r in found.rejects] == refused


def test_offsets_and_lines_go_together_far_into_a_file() -> None:
    found = split(Source("s", "p"), b"one\r\n\r\nthree\n", 1 << 40, 100)
    assert found.lines.to_pylist() == ["one", "", "three"]
    assert found.offsets.tolist() == [(1 << 40), (1 << 40) + 5, (1 << 40) + 7]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("split")


@given(FILES.filter(lambda data: not is_compressed(data)), st.integers(1, 60))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_chunk_size_gives_the_same_lines(folder: Path, data: bytes, bytes_max: int) -> None:
    path = folder / "file"
    path.write_bytes(data)
    whole = Whole([str(path)], max_line_bytes=MAX_LINE)
    chunks = read_all(whole, bytes_max)
    assert collected(chunks) == obvious(data, last=True)
    assert whole.exhausted
    assert sum(chunk.end - chunk.start for chunk in chunks) == len(data)
    whole.close()
    tail = Tail([str(path)], max_line_bytes=MAX_LINE)
    assert collected(read_all(tail, bytes_max)) == obvious(data, last=False)
    tail.close()


@given(FILES, st.lists(st.integers(0, 200), max_size=5), st.integers(1, 60))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_cut_anywhere_give_every_line_once(
    folder: Path, data: bytes, cuts: list[int], bytes_max: int
) -> None:
    data = b"{" + data
    path = folder / "ranged"
    path.write_bytes(data)
    edges = sorted({0, *(cut for cut in cuts if cut < len(data))})
    ends: list[int | None] = [*edges[1:], None]
    ranges = [Range(str(path), start, end) for start, end in zip(edges, ends, strict=True)]
    lines: list[Line] = []
    refused: list[Refused] = []
    for item in ranges:
        whole = Whole([item], max_line_bytes=MAX_LINE)
        found = collected(read_all(whole, bytes_max))
        lines += found[0]
        refused += found[1]
    assert (lines, refused) == obvious(data, last=True)


@given(st.lists(PIECES, max_size=30), st.integers(1, 50))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_that_grows_piece_by_piece_gives_the_same_lines(
    folder: Path, pieces: list[bytes], bytes_max: int
) -> None:
    path = folder / "growing"
    path.unlink(missing_ok=True)
    path.write_bytes(b"{")
    tail = Tail([str(path)], max_line_bytes=MAX_LINE)
    chunks = read_all(tail, bytes_max)
    clock = path.stat().st_mtime_ns
    with path.open("ab") as file:
        for number, piece in enumerate(pieces):
            file.write(piece)
            file.flush()
            os.utime(path, ns=(clock, clock + number + 1))
            chunks += read_all(tail, bytes_max)
    tail.close()
    assert collected(chunks) == obvious(b"{" + b"".join(pieces), last=False)
