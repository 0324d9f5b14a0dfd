"""``elf bench guest``: an nginx beside an agent that wants twice its share, and beside none."""

from __future__ import annotations

import json
import select
import socket
import time
from threading import Thread

import numpy as np
import psutil
import pytest

from elf.schema import Column, Schema
from lab.bench import guest, openload
from lab.bench.measure import STREAM, plan_of
from lab.bench.rotation import writers

needs_nginx = pytest.mark.skipif(writers.place_of("nginx") is None, reason="nginx is not here")


def turns(chance: np.random.Generator, count: int, times: float, share: float = 1.0) -> list[guest.Turn]:
    """Of which some requests, a share of them, take so many times as long."""
    found = []
    for _ in range(count):
        took = chance.lognormal(5.3, 0.3, 2_000)
        took[chance.random(2_000) < share] *= times
        found.append(guest.Turn(took.tolist(), {"requests_per_s": 2_000.0}))
    return found


@needs_nginx
@pytest.mark.parametrize(("times", "word"), [(1.0, ""), (1.08, "not reached")])
def test_what_is_longer_by_a_few_percent_is_told(times: float, word: str) -> None:
    chance = np.random.default_rng(7)
    report = guest.Guest().report({"beside": turns(chance, 60, times), "alone": turns(chance, 60, 1.0)})
    low, high = report.figures[1].beside["at least"], report.figures[1].beside["at most"]
    assert low <= 100 * (times - 1) <= high
    assert high - low < 4
    assert (low > 1) == (word == "not reached") == (": not reached" in report.notes[0])


def test_an_agent_that_works_in_few_turns_is_seen() -> None:
    """A median of turns would say that nothing is longer."""
    chance = np.random.default_rng(7)
    beside = [*turns(chance, 10, 3.0), *turns(chance, 30, 1.0)]
    more, low, _ = guest.longer([one.took for one in beside], [t.took for t in turns(chance, 40, 1.0)])
    assert more > 50
    assert low > 1


@needs_nginx
def test_few_turns_tell_nothing_and_say_so() -> None:
    chance = np.random.default_rng(7)
    report = guest.Guest().report({"beside": turns(chance, 2, 1.0), "alone": turns(chance, 2, 1.0)})
    assert "not told: too few turns" in report.notes[0]


def test_two_turns_of_a_seed_ask_at_the_same_times() -> None:
    first, same, other = (openload.schedule(5, 2_000, seed) for seed in (1, 1, 2))
    assert first == same != other
    assert 9_500 < len(first) < 10_500
    assert max(first) < 5


def test_no_two_jobs_are_one_flow() -> None:
    columns = [Column("ts", "timestamp"), Column("sc_status", "bigint"), Column("sc_bytes", "bigint")]
    columns += [Column(name, "text") for name in ("cs_uri_stem", "c_ip", "cs_method", "cs_user_agent")]
    schema = Schema(tuple(columns), "ts")
    queries = [query.replace("FROM access", f"FROM {STREAM}") for query in guest.queries(20)]
    assert len({plan_of(query, schema).fragment for query in queries}) == 20


class Slow(Thread):
    """A server that answers nothing for a while, once, and then all that it was asked."""

    def __init__(self, still_s: float) -> None:
        super().__init__(daemon=True)
        self._still_s = still_s
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        there = [self._listener.accept()[0] for _ in range(openload.CONNECTIONS)]
        time.sleep(self._still_s)
        while ready := select.select(there, [], [], 5)[0]:
            for one in ready:
                if not one.recv(1 << 16):
                    return
                one.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + b"ok")


def test_what_was_due_while_the_server_stood_still_counts_from_then() -> None:
    slow = Slow(1.0)
    slow.start()
    due = openload.schedule(1.0, 500, 1)
    took = openload.Load(slow.port).turn(due, 30)
    assert len(took) == len(due)
    still = sum(one > 100_000 for one in took)
    assert still > 0.6 * len(due), "also those for which there was no connection"


@needs_nginx
def test_an_nginx_is_asked_beside_an_agent_and_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert guest.Guest(rate=200, jobs=3, seconds=1, settle=0, repeat=2).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    for side in ("beside", "alone"):
        assert 0 < said[side]["p50_ms"] <= said[side]["p99_ms"] <= said[side]["p999_ms"]
        assert said[side]["requests_per_s"] > 50
    assert said["beside"]["agent_percent"] > 0
    assert said["beside"]["lent_percent"] > 0
    commands = [child.cmdline() for child in psutil.Process().children()]
    assert not any("agents.main" in command or "nginx" in command[:1] for command in commands)
