"""Large multicasts of jobs in Python: in pieces, whole or not at all, and in order."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import accumulate

import pytest

from elf.fields import replace
from elf.job.effects import Send
from elf.job.program.calls import MULTICAST_BYTES_MAX, FeedOut
from elf.job.program.feedback import (
    ASK_MS,
    GIVE_UP_MS,
    HELD_BYTES_MAX,
    HOLD_MS,
    SILENT_MS,
    WAITING_MAX,
    Feedback,
    Given,
    Name,
)
from elf.job.program.keyed import (
    CUT_BYTES,
    ENTRY_BYTES_MAX,
    INLINE_BYTES_MAX,
    PIECE_BYTES,
    asks_of,
    cut,
    hash_of,
    packed,
    place_of,
)
from elf.job.program.messages import AskPiece, Piece, Told

APP = bytes(16)
UID = f"{APP.hex()}.1"
PARENTS = {"master": None, "b": "master", "c": "b"}
BIG = random.Random(1).randbytes(INLINE_BYTES_MAX + 3 * PIECE_BYTES + 7)
SMALL = b"small"


def parent_of(name: str) -> Callable[[bytes], str | None]:
    return lambda _: PARENTS[name]


def asks_for(keys: frozenset[bytes] | None) -> Callable[[str], frozenset[bytes]]:
    return lambda _: keys or frozenset()


class Line:
    """The master's agent, one below it, and one below that. ``asks``: the keys that jobs have asked for;
    ``lost``: of these messages all get lost."""

    def __init__(self, **asks: str) -> None:
        wanted = {
            name: frozenset(hash_of(key.encode()) for key in keys.split()) for name, keys in asks.items()
        }
        self.agents = {
            name: Feedback(lambda _: APP, parent_of(name), lambda _: "master", asks_for(wanted.get(name)))
            for name in PARENTS
        }
        self.given: dict[str, list[bytes | int | tuple[bytes, ...]]] = {name: [] for name in PARENTS}
        self.pieces = 0
        self.sent: list[tuple[str, str]] = []
        self.now = 0
        self.number = 0
        self.lost: set[tuple[str, str]] = set()

    def multicast(self, value: bytes) -> Told:
        self.number += 1
        return self.agents["master"].send(Name(UID, 1, self.number), value, self.now)

    def feed(self, messages: dict[str, bytes]) -> Told:
        self.number += 1
        pieces = cut([(hash_of(key.encode()), value) for key, value in messages.items()])
        fed = FeedOut(b"".join(pieces), tuple(accumulate(map(len, pieces))))
        told = self.agents["master"].feed(Name(UID, 1, self.number), fed, self.now)
        assert told is not None
        return told

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
                self.pieces += 1
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


# -- by key ----------------------------------------------------------------------------------------------

MANY = {f"key{n}": n.to_bytes(2, "big") * 500 for n in range(2_000)}
"""More than a tree carries."""


def test_what_is_small_travels_in_the_tree_and_each_is_given_what_it_has_asked_for() -> None:
    line = Line(b="Doom Pong", c="Quake")
    told = line.feed({"Doom": b"1", "Myst": b"2", "Pong": b"3"})
    assert (told.size, told.cuts) == (0, 1)
    for name in line.agents:
        line.tell(name, told)
    assert line.given == {"master": [()], "b": [(b"1", b"3")], "c": [()]}
    assert not line.sent


def test_of_what_is_large_an_agent_takes_the_pieces_of_its_keys_and_of_those_below_it() -> None:
    line = Line(b="key1 nothing", c="key7 key8")
    told = line.feed(MANY)
    assert (told.value, told.cuts) == (b"", told.size // CUT_BYTES)
    for name in line.agents:
        line.tell(name, told)
    assert line.given["master"] == [()]
    assert line.given["b"] == [(MANY["key1"],)]
    assert sorted(line.given["c"][0]) == [MANY["key7"], MANY["key8"]]  # type: ignore[arg-type]
    own = {
        name: {place_of(hash_of(k.encode()), told.cuts) for k in keys}
        for name, keys in (("b", ("key1", "nothing")), ("c", ("key7", "key8")))
    }
    assert line.pieces == len(own["b"] | own["c"]) + len(own["c"]), "and nothing else"
    assert ("c", "master") not in line.sent
    line.tick(HOLD_MS)
    assert not any(agent._large for agent in line.agents.values())


def test_what_comes_behind_a_large_one_by_key_waits_where_something_of_it_is_wanted() -> None:
    line = Line(c="key7")
    line.lost = {("c", "b")}
    for told in (line.feed(MANY), line.multicast(SMALL)):
        line.tell("b", told)
        line.tell("c", told)
    assert line.given["b"] == [(), SMALL]
    assert line.given["c"] == []
    line.tick(ASK_MS)
    line.tick(SILENT_MS)  # the master is asked
    assert line.given["c"] == [(MANY["key7"],), SMALL]


def test_one_by_key_that_does_not_come_counts_as_missed() -> None:
    line = Line(c="key7")
    line.lost = {("c", "b"), ("c", "master")}
    for told in (line.feed(MANY), line.multicast(SMALL)):
        line.tell("c", told)
    for _ in range(GIVE_UP_MS // ASK_MS + 1):
        line.tick(ASK_MS)
    assert line.given["c"] == [1, SMALL]


def test_a_piece_is_taken_of_whom_it_was_asked_and_what_is_none_has_nothing() -> None:
    line = Line(c="key7")
    told = line.feed(MANY)
    line.lost = {("c", "b")}
    line.tell("c", told)
    place = place_of(hash_of(b"key7"), told.cuts)
    forged = Piece(uid=UID, term=told.term, number=told.number, piece=place, value=packed([]))
    other = (place + 1) % told.cuts
    for sender, piece in (("stranger", place), ("b", other)):
        given, sends = line.agents["c"].came(sender, replace(forged, piece=piece), line.now)
        assert (given, sends) == ([], [])
    (none,), _ = line.agents["c"].came("b", replace(forged, value=b"no entries"), line.now)
    assert none.value == ()


def test_feedback_is_cut_within_bounds() -> None:
    entry = bytes(ENTRY_BYTES_MAX)
    few = cut([(hash_of(bytes([n])), entry) for n in range(200)])
    assert max(map(len, few)) <= PIECE_BYTES
    with pytest.raises(ValueError, match="the messages of some keys are too large"):
        cut([(hash_of(b"one"), entry)] * 20)
    assert asks_of(hash_of(b"a") + hash_of(b"b")) == {hash_of(b"a"), hash_of(b"b")}
    line = Line()
    assert line.agents["master"].feed(Name(UID, 1, 1), FeedOut(b"x" * 9, (3, 3, 9)), 0) is None
