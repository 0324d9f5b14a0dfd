"""What a job would cost is told by the job that is most like it."""

from __future__ import annotations

import pytest

from elf.fields import replace
from elf.planning.costs import GROUP_BYTES, MemberCost, Running, Wanted, cost_of

SECOND = 1_000_000
OF_PAGES = MemberCost(10, rows=1_000, map_us=2_000, seal_us=500, groups=50, bytes=1_000)
PAGES = Running(("top",), ("page",), 10 * SECOND, OF_PAGES)
"""100 lines a second in ten panes of 50 pages, of 20 bytes."""
ALL = Running(("all",), (), SECOND, MemberCost(900, rows=100, map_us=10, seal_us=1, groups=1, bytes=20))
HOSTS = Running(("hosts",), ("host",), 10 * SECOND, replace(OF_PAGES, rows=500))


def test_a_job_with_the_same_groups_tells_most() -> None:
    cost = cost_of(Wanted(("page",), 20 * SECOND, 0), [HOSTS, ALL, PAGES])
    assert cost is not None
    assert (cost.like, cost.alike) == (("top",), "a job with the same groups")
    assert cost.lines_per_sec == pytest.approx(100)
    assert cost.cpu_share == pytest.approx((100 * 2 + 500 / 20) / 1e6)
    assert cost.up_bytes_per_sec == pytest.approx(50 * 20 / 20)
    assert cost.memory_bytes == 50 * GROUP_BYTES * 2


def test_with_other_groups_there_are_as_many_more_as_the_pane_is_longer() -> None:
    cost = cost_of(Wanted(("agent",), 20 * SECOND, 40 * SECOND), [ALL, PAGES])
    assert cost is not None
    assert (cost.like, cost.alike) == (("top",), "a job with as many keys")
    assert cost.memory_bytes == 100 * GROUP_BYTES * 4


def test_a_pane_has_no_more_groups_than_lines() -> None:
    few = PAGES._replace(cost=replace(OF_PAGES, rows=50, groups=49))
    cost = cost_of(Wanted(("agent", "page"), SECOND // 10, 0), [few])
    assert cost is not None
    assert cost.alike == "any job over the stream"
    assert cost.memory_bytes <= 0.5 * GROUP_BYTES * 2


def test_what_has_made_no_pane_tells_nothing() -> None:
    assert cost_of(Wanted((), SECOND, 0), []) is None
    assert cost_of(Wanted((), SECOND, 0), [PAGES._replace(cost=replace(OF_PAGES, panes=0))]) is None
    assert cost_of(Wanted((), 0, 0), [PAGES]) is None
