"""Large multicasts of jobs in Python: in pieces, whole or not at all, and in order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from elf.job.effects import Send
from elf.job.program.calls import MULTICAST_BYTES_MAX
from elf.job.program.feedback import (
    ASK_MS,
    GIVE_UP_MS,
    HELD_BYTES_MAX,
    HOLD_MS,
    INLINE_BYTES_MAX,
    SILENT_MS,
    WAITING_MAX,
    Feedback,
    Given,
    Name,
)
from elf.job.program.messages import PIECE_BYTES, AskPiece, Piece, Told

APP = bytes(16)
UID = f"{APP.hex()}.1"
PARENTS = {"master": None, "b": "master", "c": "b"}
BIG = random.Random(1).randbytes(INLINE_BYTES_MAX + 3 * PIECE_BYTES + 7)
SMALL = b"small"


def parent_of(name: str) -> Callable[[bytes], str | None]:
    return lambda _: PARENTS[name]


class Line:
    """The master's agent, one below it, and one below that. ``lost``: of these messages all get lost."""

    def __init__(self) -> None:
        self.agents = {name: Feedback(lambda _: APP, parent_of(name), lambda _: "master") for name in PARENTS}
        self.given: dict[str, list[bytes | int]] = {name: [] for name in PARENTS}
        self.sent: list[tuple[str, str]] = []
        self.now = 0
        self.number = 0
        self.lost: set[tuple[str, str]] = set()

    def multicast(self, value: bytes) -> Told:
        self.number += 1
        return self.agents["master"].send(Name(UID, 1, self.number), value, self.now)

    def tell(self, to: str, told: Told) -> None:
        given, sends = self.agents[to].told(told, self.now)
        self._give(to, given)
        self._deliver(to, sends)

    def tick(self, ms: int, *names: str) -> None:
        self.now += ms
        for name in names or self.agents:
            agent = self.agents[name]
            given, sends = agent.tick(self.now)
            self._give(name, given)
            self._deliver(name, sends)

    def _give(self, to: str, given: list[Given]) -> None:
        for one in given:
            self.given[to].append(one.value)

    def _deliver(self, sender: str, sends: list[Send]) -> None:
        todo = deque((sender, send) for send in sends)
        while todo:
            sender, send = todo.popleft()
            if (sender, send.to) in self.lost:
                continue
            self.sent.append((sender, send.to))
            agent, message = self.agents[send.to], send.message
            if isinstance(message, AskPiece):
                todo += ((send.to, one) for one in agent.asked(sender, message, self.now))
            elif isinstance(message, Piece):
                given, more = agent.came(sender, message, self.now)
                self._give(send.to, given)
                todo += ((send.to, one) for one in more)


def test_a_small_one_travels_in_the_tree_itself() -> None:
    line = Line()
    told = line.multicast(SMALL)
    assert (told.value, told.size) == (SMALL, 0)
    line.tell("b", told)
    assert line.given["b"] == [SMALL]
    assert not line.sent


def test_each_agent_has_it_of_its_parent_whole() -> None:
    line = Line()
    told = line.multicast(BIG)
    assert told.value == b""
    line.tell("master", told)
    line.lost = {("b", "master")}
    line.tell("b", told)
    line.tell("c", told)  # b has nothing yet, and knows that c wants it
    line.lost.clear()
    line.tick(ASK_MS, "b")
    assert line.given == {"master": [BIG], "b": [BIG], "c": [BIG]}
    assert ("c", "master") not in line.sent, "the master's agent is asked by its children alone"


def test_what_comes_behind_a_large_one_waits_for_it() -> None:
    line = Line()
    line.lost = {("b", "master")}
    for value in (SMALL, BIG, b"after"):
        line.tell("b", line.multicast(value))
    line._give("b", line.agents["b"].missed(APP, 2, line.now))
    assert line.given["b"] == [SMALL]
    line.lost.clear()
    line.tick(ASK_MS)
    assert line.given["b"] == [SMALL, BIG, b"after", 2]


def test_who_has_a_silent_parent_asks_the_master() -> None:
    line = Line()
    line.lost = {("c", "b"), ("b", "c")}
    line.tell("c", line.multicast(BIG))
    line.tick(ASK_MS)
    assert line.given["c"] == []
    line.tick(SILENT_MS)
    assert line.given["c"] == [BIG]


def test_one_that_does_not_come_counts_as_missed_and_the_others_go_on() -> None:
    line = Line()
    line.lost = {("b", "master"), ("c", "b"), ("c", "master")}
    line.tell("b", line.multicast(BIG))
    line.tell("b", line.multicast(b"after"))
    line.tick(GIVE_UP_MS)
    assert line.given["b"] == [1, b"after"]
    line.lost.clear()
    line.tell("b", line.multicast(BIG))
    assert line.given["b"] == [1, b"after", BIG]


def test_nobody_is_believed_but_who_was_asked() -> None:
    line = Line()
    line.lost = {("b", "master")}
    told = line.multicast(BIG)
    line.tell("b", told)
    piece = Piece(uid=UID, term=1, number=1, piece=0, value=b"x" * PIECE_BYTES)
    for sender, said in (
        ("stranger", piece),
        ("master", Piece(uid=UID, term=1, number=1, piece=0, value=b"x")),
    ):
        assert line.agents["b"].came(sender, said, 0) == ([], [])
    line.lost.clear()
    line.tick(ASK_MS)
    assert line.given["b"] == [BIG]
    assert line.agents["b"].came("master", piece, 0) == ([], []), "it has it already"


def test_large_ones_that_wait_for_another_are_bounded_too() -> None:
    line = Line()
    line.lost = {("b", "master")}
    line.tell("b", line.multicast(BIG))
    line.lost.clear()
    large = bytes(MULTICAST_BYTES_MAX)
    for count in range(1, HELD_BYTES_MAX // MULTICAST_BYTES_MAX + 1):
        line.tell("b", line.multicast(large))
        assert line.given["b"] == []
        assert sum(one.is_whole for one in line.agents["b"]._large.values()) == count
    line.tell("b", line.multicast(large))
    assert line.given["b"] == [1, *[large] * (count + 1)]


def test_too_much_does_not_wait_and_what_is_held_is_bounded() -> None:
    line = Line()
    line.lost = {("b", "master")}
    line.tell("b", line.multicast(BIG))
    for _ in range(WAITING_MAX):
        line.tell("b", line.multicast(SMALL))
    assert line.given["b"] == [1, *[SMALL] * WAITING_MAX]
    for _ in range(4):
        line.multicast(bytes(MULTICAST_BYTES_MAX))
    held = sum(one.size for one in line.agents["master"]._large.values())
    assert held <= HELD_BYTES_MAX
    line.tick(HOLD_MS)
    assert not line.agents["master"]._large
    assert line.agents["master"].deadline() is None
