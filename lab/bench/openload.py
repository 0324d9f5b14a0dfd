"""Requests at times that are fixed before, whatever becomes of those before them: an open loop. What a
request took counts from the time at which it was due, so a server that stands still for a while is asked for
all that was due meanwhile, and none of it is left out (no coordinated omission).

    python -m lab.bench.openload        # a line a turn: port, seconds, rate, seed; a line of JSON back

A turn's gaps are exponential, by its seed: two turns of one seed have the same schedule. There are so many
connections that one is free, and where none is, a request waits, and that counts. The loop sleeps in
``select``, whose timer is good for some 50 µs; that of ``epoll`` is for a millisecond."""

from __future__ import annotations

import gc
import json
import random
import select
import socket
import sys
import time
from array import array
from collections import deque
from typing import Final

CONNECTIONS: Final = 48
PAGES: Final = 500
LATE_S: Final = 30.0
"""Then a turn ends, whatever has no answer."""
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "


def schedule(seconds: float, rate: float, seed: int) -> array[float]:
    """When requests are due, in s from the start."""
    chance, at, found = random.Random(seed), 0.0, array("d")
    while (at := at + chance.expovariate(rate)) < seconds:
        found.append(at)
    return found


class Load:
    """Of one server, over connections that stay open."""

    def __init__(self, port: int) -> None:
        self._connections: dict[int, socket.socket] = {}
        for _ in range(CONNECTIONS):
            one = socket.create_connection(("127.0.0.1", port), timeout=5)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)
            self._connections[one.fileno()] = one
        chance = random.Random(port)
        self._asks = [
            f"GET /p/{chance.randrange(PAGES)} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for _ in range(4_096)
        ]
        self._left: dict[int, int] = {}
        """Bytes of an answer that are still to come, by connection; -1: its head is."""

    def turn(self, due: array[float], until_s: float) -> array[float]:
        """Ask as it is due; what each took, in µs, in the order of answers. Raises ``TimeoutError``."""
        took, asked = array("d"), dict[int, float]()
        free, waiting, place, count = deque(self._connections), deque[float](), 0, len(due)
        clock, began, asks = time.perf_counter, time.perf_counter(), self._asks
        while len(took) < count:
            now = clock() - began
            while place < count and due[place] <= now:
                waiting.append(due[place])
                place += 1
            while waiting and free:
                at, number = waiting.popleft(), free.popleft()
                asked[number] = at
                self._connections[number].send(asks[place & 4_095])
            rest = due[place] - (clock() - began) if place < count else 0.05
            for number in select.select(list(asked), (), (), max(rest, 0.0))[0]:
                if self._answered(number):
                    took.append((clock() - began - asked.pop(number)) * 1e6)
                    free.append(number)
            if now > until_s:
                raise TimeoutError(
                    f"{count - len(took)} of {count} requests have no answer after {now:.0f} s"
                )
        return took

    def _answered(self, number: int) -> bool:
        """Read what is there; whether the answer is whole."""
        data = self._connections[number].recv(1 << 16)
        if not data:
            raise ConnectionError("the server has closed a connection")
        left = self._left.pop(number, -1)
        if left < 0:
            head, _, body = data.partition(_END)
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"the server answers {head[:80]!r}")
            length = int(head.lower().partition(_LENGTH)[2].split(b"\r\n", 1)[0])
            left = length - len(body)
        else:
            left -= len(data)
        if left > 0:
            self._left[number] = left
        return left <= 0


def main() -> None:
    """Turns, as standard input says, until it ends."""
    gc.disable()
    loads: dict[int, Load] = {}
    for line in sys.stdin:
        port, seconds, rate, seed = json.loads(line)
        if port not in loads:
            loads[port] = Load(port)
        took = loads[port].turn(schedule(seconds, rate, seed), seconds + LATE_S)
        print(json.dumps([round(one, 1) for one in took]), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
