"""Flows that are about agents with some labels: who is asked, and who is expected."""

from __future__ import annotations

import pytest

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import MemberJoined
from elf.job.places import KEPT, Labels, may_have_rows
from elf.job.rollup.presence import Roster
from elf.ql import planner, statements
from elf.ql.plan import Fragment
from elf.schema import Column, Schema

STREAM = "access"
SCHEMA = Schema((Column("ts", "timestamp"), Column("page", "text")), "ts", labels=("place", "role"))


def fragment_of(on: str, where: str = "") -> Fragment:
    text = f"SELECT COUNT(*) AS n FROM {STREAM} ON {on} {where} WINDOWING 1 SECONDS"
    (statement,) = statements.parse(text)
    assert isinstance(statement, statements.Select)
    return planner.plan(statement.query, SCHEMA, stream=STREAM).fragment


def joined(seq: int, number: int, labels: Labels | None, start: int = 1) -> MemberJoined:
    return MemberJoined(
        seq=seq,
        stream=STREAM,
        number=number,
        agent_id=f"id{number}",
        name=f"web-{number}",
        incarnation=start,
        address=f"10.0.0.{number}:7100",
        since_us=-1,
        labels=labels,
    )


EU, US = (("place", "eu"), ("role", "shop")), (("place", "us"),)


@pytest.mark.parametrize(
    ("on", "eu", "us", "bare"),
    [
        ("place = 'eu'", True, False, False),
        ("place <> 'eu'", False, True, False),
        ("place IN ('eu', 'asia')", True, False, False),
        ("NOT place = 'eu'", False, True, False),
        ("place = 'us' OR role = 'shop'", True, True, False),
        ("place = 'eu' AND role = 'mail'", False, False, False),
        ("role IS NULL", False, True, True),
        ("place >= 'f'", False, True, False),
        ("LENGTH(place) = 2", True, True, True),  # it takes SQL to know
        ("place = 'eu' AND LENGTH(place) = 2", True, False, False),
    ],
)
def test_labels_say_who_may_have_rows(on: str, eu: bool, us: bool, bare: bool) -> None:
    fragment = fragment_of(on)
    assert [may_have_rows(fragment, [labels]) for labels in (EU, US, ())] == [eu, us, bare]
    assert may_have_rows(fragment, None), "who says nothing may have any"


def test_conditions_on_rows_decide_nothing_about_agents() -> None:
    fragment = fragment_of("place = 'eu'", "WHERE page = '/' OR _labels.role = 'mail'")
    assert may_have_rows(fragment, [EU])
    assert not may_have_rows(fragment, [US])


def test_who_cannot_have_a_row_is_not_expected() -> None:
    log = CatalogLog([joined(1, 0, EU), joined(2, 1, US), joined(3, 2, None)])
    fragment = fragment_of("place = 'eu'")
    assert [member.number for member in log.asked(fragment)] == [0, 2]
    assert Roster(fragment.pane_us, log.asked(fragment), log.last).expected(7) == 0b101
    late = replace(fragment_of("role IS NULL"), where=(), late_of="")
    assert len(log.asked(late)) == 3


def test_other_labels_count_beside_those_from_before() -> None:
    log = CatalogLog([joined(1, 0, US), joined(2, 0, EU, 2)])
    assert all(log.asked(fragment_of(f"place = '{place}'")) for place in ("eu", "us"))
    assert not log.asked(fragment_of("place = 'asia'"))
    for start in range(3, KEPT + 2):
        log.append(joined(start, 0, (("place", str(start)),), start))
    assert log.asked(fragment_of("place = 'asia'")), "it has had too many to tell"
