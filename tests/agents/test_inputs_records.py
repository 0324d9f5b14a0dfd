"""Records of several lines, as files that are followed have them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agents.inputs.records import Records
from agents.inputs.tail import Tail
from agents.inputs.values import Position
from tests.support.files import drain, lines, write

WAIT_MS = 2_000
STARTS = Records(r"^\d", WAIT_MS)


def opened(log: Path, positions: tuple[Position, ...] = (), max_line_bytes: int = 1 << 20) -> Tail:
    return Tail(
        [str(log)], positions=positions, records=STARTS, max_line_bytes=max_line_bytes, rotate_wait_secs=0
    )


def test_a_record_waits_for_the_next_one_and_not_for_ever(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, " rest of before\n1 one\n  more\n2 two\n")
    tail = opened(log)
    assert lines(drain(tail, 0)) == [" rest of before", "1 one\n  more"]
    write(log, "  of two\nnot who")
    assert lines(drain(tail, WAIT_MS - 1)) == [], "it has grown, so it waits anew"
    assert lines(drain(tail, 2 * WAIT_MS - 2)) == []
    again = opened(log, tail.positions())
    assert lines(drain(tail, 2 * WAIT_MS - 1)) == ["2 two\n  of two"]
    assert lines(drain(tail, 9 * WAIT_MS)) == []
    write(log, "le\n3\n4\n")
    assert lines(drain(tail, 9 * WAIT_MS)) == ["not whole", "3"]
    assert lines(drain(again, 9 * WAIT_MS)) == ["2 two\n  of two\nnot whole", "3"]
    log.unlink()
    write(log, "5\n")
    assert lines(drain(tail, 9 * WAIT_MS + 1_000)) == ["4"], "nothing follows in a file that is gone"
    assert tail.gaps() == ()
    tail.close()
    again.close()


def test_what_is_no_line_is_of_no_record(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"\xff\n1 a\n\xff\n b\n2\n\xff\n")
    tail = opened(log)
    (first, second) = drain(tail, 0), drain(tail, WAIT_MS)
    assert (lines(first), lines(second)) == (["1 a\n b"], ["2"])
    assert [reject.offset for chunk in (*first, *second) for reject in chunk.rejects] == [0, 6, 13]
    tail.close()


@pytest.mark.parametrize("seed", range(6))
def test_records_are_the_same_whatever_is_read_at_once(tmp_path: Path, seed: int) -> None:
    """Also when one is longer than it may be, and over restarts."""
    rng = random.Random(seed)
    texts = [
        rng.choice(["1", "2", " ", "-"]) + "x" * rng.choice([0, 3, 20, 60, 99])
        for _ in range(rng.randrange(1, 200))
    ]
    expected: list[str] = []
    for text in texts:
        if expected and not text[0].isdigit() and len(expected[-1]) + 1 + len(text) <= 100:
            expected[-1] += f"\n{text}"
        else:
            expected.append(text)
    log = tmp_path / "a.log"
    write(log, "".join(f"{text}\n" for text in texts))
    found: list[str] = []
    tail, now = opened(log, max_line_bytes=100), 0
    for _ in range(2_000):
        chunk = tail.read(rng.choice([1, 10, 100, 1_000]), now)
        found += lines([chunk]) if chunk is not None else []
        if rng.random() < 0.1:
            positions = tail.positions()
            tail.close()
            tail = opened(log, positions, max_line_bytes=100)
        now += 1
    found += lines(drain(tail, now + WAIT_MS))
    assert found == expected
    tail.close()
