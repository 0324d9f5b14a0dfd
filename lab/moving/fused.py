"""Operators that hand each tuple on, as in Storm: what it costs where a tuple is packed and unpacked in
between. Enorm's simple job (7.7) and its fast job (Figure 16); and what moving a share of a job's state costs
(Figure 12).

What is measured is CPU time of this process, of all operators together. A tuple is a key, a number and an
event time. Between components each is encoded, goes through a local socket with others, and is decoded. An
operator sums by key and window, which is what the paper calls simple aggregation. elf itself never hands rows
on one by one: what travels is a sealed pane, so these are figures of the paper's model and not of the
product.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

TUPLES: Final = 100_000
KEYS: Final = 1_000
SECONDS: Final = 1_200
"""Of event time."""
FAST: Final = (60, 300, 600, 1_200)
"""Windows of the four operators of the fast job, in seconds."""
TRIES: Final = 3
"""The least of so many counts: others are at work on the machine."""
BATCH: Final = 64
"""Tuples that are sent together."""

Tuple = tuple[str, int, int]
Take = Callable[[Tuple], None]

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[str, int, int]).decode


def drawn(seed: int, tuples: int = TUPLES, keys: int = KEYS) -> list[Tuple]:
    """Keys alike, in the order of event time."""
    rng = random.Random(seed)
    return [(f"key {rng.randrange(keys)}", rng.randrange(100), n * SECONDS // tuples) for n in range(tuples)]


def compute(window_s: int, onward: Take | None) -> Take:
    """An operator that sums by key and window, and hands each tuple on at once."""
    state: dict[str, int] = {}
    ends, done = window_s, list[dict[str, int]]()

    def take(one: Tuple) -> None:
        nonlocal state, ends
        key, value, at = one
        if at >= ends:
            done.append(state)
            state, ends = {}, ends + window_s
        state[key] = state.get(key, 0) + value
        if onward is not None:
            onward(one)

    return take


class Wire:
    """To another component."""

    def __init__(self, onward: Take) -> None:
        self._onward = onward
        self._here, self._there = socket.socketpair()
        self._waiting: list[bytes] = []

    def take(self, one: Tuple) -> None:
        data = _encode(one)
        self._waiting += (len(data).to_bytes(2, "big"), data)
        if len(self._waiting) >= 2 * BATCH:
            self.flush()

    def flush(self) -> None:
        sent = b"".join(self._waiting)
        self._waiting.clear()
        self._here.sendall(sent)
        came = b""
        while len(came) < len(sent):
            came += self._there.recv(len(sent) - len(came))
        place = 0
        while place < len(came):
            start = place + 2
            place = start + int.from_bytes(came[place:start], "big")
            self._onward(_decode(came[start:place]))

    def close(self) -> None:
        self._here.close()
        self._there.close()


def cpu_of(work: Callable[[], object]) -> float:
    """Seconds, the least of some tries."""
    found = []
    for _ in range(TRIES):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def fast_job(tuples: Sequence[Tuple], fused: int) -> float:
    """The first ``fused`` of the four operators are one component (0 and 1: none are)."""

    def work() -> None:
        wires = list[Wire]()
        onward: Take | None = None
        for place in reversed(range(len(FAST))):
            if onward is not None and place + 1 >= fused:
                wires.append(Wire(onward))
                onward = wires[-1].take
            onward = compute(FAST[place], onward)
        assert onward is not None
        for one in tuples:
            onward(one)
        for wire in reversed(wires):
            wire.flush()
            wire.close()

    return cpu_of(work)


def figure_16(tuples: Sequence[Tuple]) -> dict[str, float]:
    """CPU seconds by how many operators are fused."""
    return {str(fused): round(fast_job(tuples, fused), 3) for fused in (0, 2, 3, 4)}


# -- the simple job ------------------------------------------------------------------------------------------

Partial = dict[str, tuple[int, int]]


def partials_of(tuples: Iterable[Tuple], window_s: int = 60) -> list[Partial]:
    """What the compute operator has of each minute."""
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for key, value, at in tuples:
        minute = found.setdefault(at // window_s, {})
        count, total = minute.get(key, (0, 0))
        minute[key] = count + 1, total + value
    return [found[minute] for minute in sorted(found)]


def consolidate(partials: Iterable[Partial]) -> Partial:
    """Larger windows of smaller ones."""
    whole: dict[str, tuple[int, int]] = {}
    for one in partials:
        for key, (count, total) in one.items():
            known = whole.get(key, (0, 0))
            whole[key] = known[0] + count, known[1] + total
    return whole


def handed_on(partial: Partial) -> Partial:
    """To the component that consolidates, tuple by tuple as a framework without batches does it."""
    found = {}
    for key, (count, total) in partial.items():
        name, one, other = _decode(_encode((key, count, total)))
        found[name] = one, other
    return found


def simple_job(tuples: Sequence[Tuple]) -> dict[str, float]:
    """As one component, and as two; complete results every five minutes."""

    def windows(partials: Sequence[Partial]) -> None:
        for first in range(0, len(partials), 5):
            consolidate(partials[first : first + 5])

    combined = cpu_of(lambda: windows(partials_of(tuples)))
    split = cpu_of(lambda: windows([handed_on(one) for one in partials_of(tuples)]))
    return {
        "combined_s": round(combined, 3),
        "split_s": round(split, 3),
        "gain": round(split / combined - 1, 4),
    }


def figure_12(tuples: Sequence[Tuple], shares: Sequence[float]) -> dict[str, dict[str, float]]:
    """What it adds to the CPU of the split simple job to move a share of its key groups in the middle of a
    minute: with their state (*disruptive*), or without it, so that the minute has two partials of a key
    (*instant*)."""
    keys = sorted({one[0] for one in tuples})
    half = [one for one in tuples if one[2] < SECONDS // 2]
    minute = [one for one in half if one[2] >= SECONDS // 2 - 30]
    rest = [one for one in tuples if SECONDS // 2 <= one[2] < SECONDS // 2 + 30]
    whole = cpu_of(lambda: [handed_on(one) for one in partials_of(tuples)])
    found = {}
    for share in shares:
        moved = set(keys[: round(share * len(keys))])
        before = partials_of([one for one in minute if one[0] in moved], SECONDS)
        after = partials_of([one for one in rest if one[0] in moved], SECONDS)

        def disruptive(before: list[Partial] = before) -> None:
            for one in before:
                handed_on(one)

        def instant(before: list[Partial] = before, after: list[Partial] = after) -> None:
            there = [handed_on(one) for one in before]
            consolidate([*there, *after])

        found[f"{share:.0%}"] = {
            "disruptive": round(cpu_of(disruptive) / whole, 4),
            "instant": round(cpu_of(instant) / whole, 4),
        }
    return found
