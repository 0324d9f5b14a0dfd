"""Planted bugs of section 1 of the protocol: names."""

from __future__ import annotations

import pytest

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.members import FOREVER_US, Member
from elf.ql.plan import Fragment


def counts_by_place(patch: pytest.MonkeyPatch) -> None:
    """protocol 1.5: a contribution set is over places in the roster of the moment, not member numbers."""

    def members(log: CatalogLog, stream: str) -> tuple[Member, ...]:
        there = [m for m in log._members.get(stream, {}).values() if m.until_us == FOREVER_US]
        there.sort(key=lambda member: member.number)
        first = min(log._members.get(stream, {}), default=0)
        return tuple(replace(member, number=first + place) for place, member in enumerate(there))

    patch.setattr(CatalogLog, "members", members)


def spreads_what_belongs_together(patch: pytest.MonkeyPatch) -> None:
    """protocol 1.7: a group is in a range by all of its keys, and its root does what some of them decide."""
    patch.setattr(Fragment, "ranged_by", property(lambda fragment: fragment.group_keys))
