"""A share of CPU: what is over it waits, in pauses that take no file for silent."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from agents.disk.store import Store
from agents.tasks.allowance import (
    BURST_S,
    LOOK_S,
    PAUSE_S_MAX,
    PAUSE_S_MIN,
    Allowance,
    Ceiling,
    DayAllowance,
    FolderSize,
)
from elf.job import events as was
from elf.job.commands import Install
from elf.job.worker import sources
from elf.job.worker.stream import WorkerSettings
from elf.planning.days import Day
from tests.support.guest import STREAM, Guest, guest, lines, the_flow
from tests.support.waiting import eventually


class Host:
    """A clock, and the CPU time of a process."""

    now = spent = 0.0

    def share(self, share: float) -> Allowance:
        return Allowance(share, lambda: self.now, lambda: self.spent)

    def works(self, secs: float) -> None:
        self.now += secs
        self.spent += secs


def test_who_has_no_share_is_never_held_back() -> None:
    host = Host()
    share = host.share(0)
    host.works(1_000)
    assert (share.bounds, share.pause_s()) == (False, 0)


@pytest.mark.parametrize("share", [0.05, 0.25, 0.9])
def test_it_takes_its_share_and_no_more(share: float) -> None:
    host = Host()
    held, pauses = host.share(share), list[float]()
    while host.now < 1_000:
        host.works(0.1)
        if pause_s := held.pause_s():
            pauses.append(pause_s)
            host.now += pause_s
    most = share * (host.now + BURST_S + PAUSE_S_MIN) + 0.1
    assert share * 950 <= host.spent <= most
    assert min(pauses) >= PAUSE_S_MIN > sources.STALL_MS / 1000


def test_what_was_not_taken_may_be_taken_at_once_but_not_for_ever() -> None:
    host = Host()
    share = host.share(0.5)
    host.now = 10_000
    assert share.pause_s() == 0
    host.works(BURST_S / 2)
    assert share.pause_s() == 0
    host.works(BURST_S)
    assert share.pause_s() > PAUSE_S_MIN


def test_little_work_is_never_held_back() -> None:
    host = Host()
    share = host.share(0.1)
    for _ in range(10_000):
        host.now += 0.2
        host.spent += 0.015
        assert share.pause_s() == 0


def test_what_other_work_has_taken_is_not_owed_for_ever() -> None:
    host = Host()
    share = host.share(0.1)
    host.works(1_000)
    assert share.pause_s() == pytest.approx(PAUSE_S_MAX)
    host.now += PAUSE_S_MAX
    assert share.pause_s() == 0


class Slow(Allowance):
    """Each chunk is too much."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.asked = 0

    def pause_s(self) -> float:
        self.asked += 1
        return PAUSE_S_MIN if self.asked % 2 else 0.0


async def test_a_pause_makes_no_row_late(tmp_path: Path) -> None:
    """Two files with more than one chunk each: none of them is taken for silent while nobody reads it."""
    for name in "ab":
        (tmp_path / f"{name}.log").write_text(lines(0, 1))
    share, count = Slow(), 30_000
    async with guest(tmp_path / "*.log", settings=WorkerSettings(idle_ms=2_000), cpu_share=share) as agent:
        agent.feeding.perform(STREAM, Install(the_flow()))
        await agent.begun()
        for name in "ab":
            (tmp_path / f"{name}.log").open("a").write(lines(1, count))
        await eventually(lambda: agent.rows() + agent.late() >= 2 * count, lambda: f"{agent.rows()} rows", 60)
        assert (agent.rows(), agent.late()) == (2 * count, 0)
        await eventually(lambda: share.asked >= 4, "it was held back", 20)
        held = [one for one in agent.told if isinstance(one, was.HeldBack)]
        assert held, "the node hears how far it is behind"
        assert all(one.lag_ms >= PAUSE_S_MIN * 1000 for one in held)
        await eventually(partial(_waited, agent), "panes say so", 20)


def _waited(agent: Guest) -> bool:
    return any(isinstance(one, was.Worked) and one.command == "Waited" for one in agent.told)


class Taken(Allowance):
    """Other work takes more than the share, all the time."""

    def pause_s(self) -> float:
        return 0.05


async def test_reading_goes_on_where_other_work_takes_the_share(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(lines(0, 1))
    async with guest(log, cpu_share=Taken(1.0)) as agent:
        agent.feeding.perform(STREAM, Install(the_flow()))
        await agent.begun()
        for n in range(1, 4):
            log.open("a").write(lines(n, 1))
            await eventually(partial(_has, agent, n), lambda: f"{agent.rows()} rows", 20)


class Where(Allowance):
    """Remembers on which threads it was asked."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self.threads = set[int]()

    def pause_s(self) -> float:
        self.threads.add(threading.get_ident())
        return 0.0


async def test_what_an_agent_holds_is_looked_at_beside_its_loop(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(lines(0, 1))
    async with guest(log, cpu_share=(share := Where())) as agent:
        agent.feeding.perform(STREAM, Install(the_flow()))
        await agent.begun()
        log.open("a").write(lines(1, 1))
        await eventually(lambda: bool(share.threads), "it is asked", 20)
    assert threading.get_ident() not in share.threads


def _has(agent: Guest, rows: int) -> bool:
    return agent.rows() >= rows


def test_a_day_is_read_slowly_at_its_end_and_kept_for_a_restart() -> None:
    host, kept = Host(), list[bytes]()

    def day(image: bytes | None) -> DayAllowance:
        return DayAllowance(
            8_640_000, lambda: host.spent, Day.restored(image), kept.append, lambda: int(1000 * host.now)
        )

    held = day(None)
    assert held.pause_s() == 0
    while host.now < 86_000:
        host.now += 1
        host.spent += 1_000
        host.now += held.pause_s()
    assert 8_000_000 <= host.spent <= 8_640_000 + 31_000
    host.spent += 1_000_000
    held.pause_s()
    host.now += 61
    held.pause_s()
    again = day(kept[-1])
    assert again.pause_s() == 0, "what a pause owes begins anew"
    host.spent += 1_000
    assert again.pause_s() >= PAUSE_S_MIN, "but the day is used up, still"
    host.now += 86_400
    assert again.pause_s() == 0


def test_who_holds_too_much_is_read_slower_and_slower_until_it_holds_less(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "roll").write_bytes(bytes(5_000))
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "1.run").write_bytes(bytes(900))
    host = Host()
    size = FolderSize(tmp_path, [tmp_path / "archive"], lambda: host.now)
    ceiling = Ceiling(1_000, size)
    assert (size(), ceiling.pause_s()) == (900, 0)
    (tmp_path / "state").write_bytes(bytes(200))
    assert ceiling.pause_s() == 0, "it looks now and then"
    host.now += LOOK_S
    assert [ceiling.pause_s() for _ in range(6)] == [2.5, 5, 10, 20, 30, 30]
    (tmp_path / "spill" / "1.run").unlink()
    host.now += LOOK_S
    assert ceiling.pause_s() == 0
    assert not Ceiling(0, size).bounds


def test_who_has_held_too_much_once_is_not_held_back_for_ever(tmp_path: Path) -> None:
    """The state file does not shrink."""
    host, store = Host(), Store(tmp_path / "state")
    ceiling = Ceiling(12 << 20, FolderSize(tmp_path, [], lambda: host.now, store.free_bytes))
    for n in range(20):
        store.put(str(n), bytes(1 << 20))
    assert ceiling.pause_s() > 0
    for n in range(20):
        store.put(str(n), b"")
    host.now += LOOK_S
    assert (tmp_path / "state").stat().st_size > 12 << 20
    assert ceiling.pause_s() == 0
    store.close()
