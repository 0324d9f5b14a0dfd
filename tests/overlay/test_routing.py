"""RoutingTable against a dict of hexadecimal prefixes, and the timers against a dict of times."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay import OverlayBug, Peer
from overlay.ids import RING
from overlay.routing import RoutingTable
from overlay.timers import Timers


@cache
def peer(number: int) -> Peer:
    return Peer(f"peer-{number}", 1)


ME = peer(0)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "remove"]), st.integers(1, 60)), max_size=60)


def hexadecimal(number: int) -> str:
    return f"{number:032x}"


def prefix(node: int) -> str:
    """The digits that a node shares with us, and the first that differs: the name of its cell."""
    mine, its = hexadecimal(ME.id), hexadecimal(node)
    shared = next(i for i in range(33) if i == 32 or mine[i] != its[i])
    return its[: shared + 1]


@given(STEPS, st.integers(0, RING - 1))
def test_cells_are_prefixes(steps: list[tuple[str, int]], key: int) -> None:
    table = RoutingTable(ME.id, 4)
    cells: dict[str, Peer] = {}
    for step, number in steps:
        cell = prefix(peer(number).id)
        if step == "put":
            table.put(peer(number))
            cells[cell] = peer(number)
        else:
            held = cells.get(cell) == peer(number)
            assert table.remove(peer(number).id) == held
            if held:
                del cells[cell]
        table.check()
    assert set(table) == set(cells.values())
    assert len(table) == len(cells)
    for row in range(3):
        assert set(table.row(row)) == {p for cell, p in cells.items() if len(cell) == row + 1}
    assert table.rival(key) == cells.get(prefix(key))
    for number in range(1, 61):
        assert (peer(number).id in table) == (peer(number) in cells.values())


def test_we_are_not_in_our_own_table() -> None:
    table = RoutingTable(ME.id, 4)
    assert table.rival(ME.id) is None
    with pytest.raises(OverlayBug):
        table.put(ME)


def test_check_finds_a_wrong_cell() -> None:
    table = RoutingTable(ME.id, 4)
    table.put(peer(1))
    table._rows[20] = {3: peer(2)}
    with pytest.raises(OverlayBug):
        table.check()


TIMER_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 60)),
    ),
    max_size=50,
)


@given(TIMER_STEPS)
def test_the_agenda_is_a_dict_of_times(steps: list[tuple[str, int, int]]) -> None:
    timers: Timers[int] = Timers()
    times: dict[int, int] = {}
    for step, name, at_ms in steps:
        if step == "set":
            timers.set(name, at_ms)
            times.pop(name, None)  # set again, it stands behind others of the same time
            times[name] = at_ms
        elif step == "cancel":
            timers.cancel(name)
            times.pop(name, None)
        else:
            first = min(times, key=lambda n: times[n], default=None)
            due = (first, times.pop(first)) if first is not None and times[first] <= at_ms else None
            assert timers.pop_due(at_ms) == due
        assert timers.next() == min(times.values(), default=None)
        assert all((n in timers) == (n in times) for n in range(6))
