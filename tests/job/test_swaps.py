"""The commit of a change of key, of a table with a ring, at the master of its job: without a network."""

from __future__ import annotations

from typing import cast

import msgspec

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.rings import Rings
from elf.job.effects import Effect, Send
from elf.job.group.swaps import GRACE_MS, HELD_MS, LOOK_MS, Swaps
from elf.job.messages.log import RingSwapped, SwapRing
from elf.job.output import OutputSpec
from elf.job.ring import PARTS
from elf.job.tables import NO_TABLE, ReadShard, ReadTable, ShardWindows
from elf.wire.base import Answer
from tests.support.tables import JOB

HERE = "10.0.0.1:7400"
MEMBERS = [f"10.0.0.{number}:7400" for number in range(1, 4)]
OPTIONS = (("key", "ip"), ("ring", "3"), ("shards", "8"))
OLD = OutputSpec("seen", "me", 1, JOB, "table:", OPTIONS)
NEW = replace(OLD, generation=2, options=(*OPTIONS, ("of", OLD.uid), ("was", "ip")))


class Log:
    """What a log says of a table whose key changes."""

    def __init__(self) -> None:
        self.rings = Rings()
        self.rings.have(MEMBERS)
        self.rings.add(OLD)
        self.rings.add(NEW)
        self.rings.drop(OLD.uid)
        self.paused = False

    def is_rekeying_paused(self, _: str) -> bool:
        return self.paused

    def output(self, uid: str) -> OutputSpec | None:
        return NEW if uid == NEW.uid else None


def asked(effects: list[Effect]) -> list[tuple[str, ReadTable]]:
    sent = [effect for effect in effects if isinstance(effect, Send)]
    return [(one.to, one.message) for one in sent if isinstance(one.message, ReadTable)]


def results(table: str, upto: int) -> tuple[ReadShard, bytes]:
    question = ReadShard(id=1, origin="", uid=JOB, table=table, key=("ip",), shards=8, place=0, after=1)
    return question, msgspec.msgpack.encode(ShardWindows(upto))


def said(effects: list[Effect]) -> list[SwapRing]:
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, SwapRing)]


def test_results_are_held_until_the_log_says_which_are_known() -> None:
    log = Log()
    swaps = Swaps(HERE, cast(CatalogLog, log), lambda uid: 7)
    questions = asked(swaps.advance(["v"], 1_000))
    assert len(questions) == PARTS * len(MEMBERS)
    for _, question in questions:
        assert swaps.awaits(question.id)
        swaps.answered(Answer(id=question.id))
    assert swaps.given(*results(OLD.uid, 9)), "a replica may be ahead of what the master knows"
    assert not said(swaps.advance(["v"], 1_000 + LOOK_MS))
    assert swaps.holds(OLD.uid)
    assert swaps.holds(NEW.uid)
    assert not swaps.given(*results(OLD.uid, 10)), "it was read before"
    (one,) = said(swaps.advance(["v"], 1_000 + LOOK_MS + HELD_MS))
    assert one == SwapRing(uid=NEW.uid, number=9, leader=HERE)
    log.rings.swap(RingSwapped(seq=1, uid=NEW.uid, number=9))
    assert not swaps.advance(["v"], 9_000)
    assert swaps.holds(OLD.uid), "it is over"
    assert not swaps.holds(NEW.uid)
    assert swaps.given(*results(NEW.uid, 10))


def test_a_change_waits_for_all_replicas_for_a_while_and_for_nobody_while_it_is_paused() -> None:
    log = Log()
    swaps = Swaps(HERE, cast(CatalogLog, log), lambda uid: 7)
    for at, question in asked(swaps.advance(["v"], 1_000)):
        swaps.answered(Answer(id=question.id, error=NO_TABLE if at == MEMBERS[0] else ""))
    late = asked(swaps.advance(["v"], 2_000))
    assert {at for at, _ in late} == {MEMBERS[0]}
    assert not swaps.holds(NEW.uid)
    swaps.advance(["v"], 2_000 + GRACE_MS)
    assert swaps.holds(NEW.uid)
    log.paused = True
    assert not swaps.advance(["v"], 20_000)
    assert not swaps.holds(NEW.uid)


def test_who_is_no_master_commits_nothing() -> None:
    swaps = Swaps(HERE, cast(CatalogLog, Log()), lambda uid: None)
    assert not swaps.advance(["v"], 1_000)
    assert not swaps.holds(NEW.uid)
