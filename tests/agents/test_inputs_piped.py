"""A pipe that is read as it comes: the same lines as of a file, whenever they are written."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from agents.inputs.piped import Piped
from agents.inputs.ranges import is_compressed
from agents.inputs.values import REJECT_KEPT_BYTES
from agents.inputs.whole import Whole

LINE_MAX = 3 * REJECT_KEPT_BYTES
LINES = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"", b"\r", b"a\0b", b"\xff", b"\xef\xbb\xbfx", b"line\r", b"\xc3\xa4"]),
        st.integers(REJECT_KEPT_BYTES - 2, 3 * LINE_MAX).map(lambda size: b"x" * size),
        st.integers(LINE_MAX - 2, LINE_MAX + 4).map(lambda size: b"y" * size + b"\r"),
    ),
    max_size=5,
)
Handed = tuple[list[tuple[int, str]], list[tuple[int, str, bytes, int]], int]


def handed(source: Piped | Whole, bytes_max: int) -> Handed | None:
    """Lines and rejects with their places, and how many bytes they were in; None: nothing for now."""
    chunk = source.read(bytes_max, 0)
    if chunk is None:
        return None
    lines = list(zip(chunk.offsets.tolist(), chunk.lines.to_pylist(), strict=True))
    rejects = [(r.offset, r.reason, r.data, r.length) for r in chunk.rejects]
    return lines, rejects, chunk.end - chunk.start


def together(parts: list[Handed]) -> Handed:
    lines = [line for part in parts for line in part[0]]
    return lines, [reject for part in parts for reject in part[1]], sum(part[2] for part in parts)


@settings(max_examples=40, deadline=None)
@given(LINES, st.booleans(), st.lists(st.integers(1, 9_000), min_size=1), st.integers(1, 20_000))
@example([b"x" * (LINE_MAX - 2), b"y" * (LINE_MAX + 4) + b"\r", b"x" * (LINE_MAX + 1)], False, [1], 1)
def test_the_same_lines_as_of_a_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ends: bool, cuts: list[int], bytes_max: int
) -> None:
    data = b"\n".join(lines) + (b"\n" if ends else b"")
    assume(not is_compressed(data))
    path: Path = tmp_path_factory.mktemp("pipe") / "file"
    path.write_bytes(data)
    whole = Whole([str(path)], max_line_bytes=LINE_MAX)
    wanted = together(list(iter(lambda: handed(whole, 1 << 20), None)))
    reading, writing = os.pipe()
    piped = Piped(reading, max_line_bytes=LINE_MAX)
    found, at, turn = [], 0, 0
    while at < len(data):
        size = min(max(cuts[turn % len(cuts)], len(data) // 30), 60_000, len(data) - at)
        os.write(writing, data[at : at + size])
        at, turn = at + size, turn + 1
        found += list(iter(lambda: handed(piped, bytes_max), None))
        assert not piped.exhausted
    os.close(writing)
    for _ in range(10_000):
        if piped.exhausted:
            break
        part = handed(piped, bytes_max)
        found += [part] if part is not None else []
    os.close(reading)
    assert together(found) == wanted
    assert piped.finished() == ("pipe",)
    assert piped.finished() == ()


def test_a_quiet_pipe_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    piped = Piped(reading)
    os.write(writing, b"one\ntw")
    for _ in range(200):
        part = handed(piped, 1 << 20)
        assert part is None or part[0] == [(0, "one")]
    assert not piped.exhausted
    piped.end()
    assert handed(piped, 1 << 20) == ([(4, "tw")], [], 2)
    assert piped.exhausted
    os.close(writing)
    os.close(reading)


def test_the_first_lines_are_waited_for_so_long_and_no_longer() -> None:
    """By a clock of the test: from the first line on, two seconds."""
    reading, writing = os.pipe()
    piped = Piped(reading)
    ticks = iter(range(100))
    threading.Timer(0.2, os.write, (writing, b'{"a":1}\n{"a')).start()
    began = time.monotonic()
    assert piped.begin(lambda: float(next(ticks)))
    assert 0.2 <= time.monotonic() - began < 10
    assert next(ticks) <= 5
    assert piped.head() == b'{"a":1}\n'
    os.write(writing, b'":2}\n')
    os.close(writing)
    assert handed(piped, 1 << 20) == ([(0, '{"a":1}'), (8, '{"a":2}')], [], 16)
    os.close(reading)


@pytest.mark.parametrize(
    ("data", "compressed"), [(b"\x1f\x8b\x08", True), (b"{}", False), (b"\x1f", False), (b"", False)]
)
def test_what_ends_at_once_may_be_read_like_a_file(data: bytes, compressed: bool) -> None:
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    piped = Piped(reading)
    assert piped.is_compressed == compressed
    assert not piped.begin()
    piped.copy(out := io.BytesIO())
    assert out.getvalue() == data
    os.close(reading)
