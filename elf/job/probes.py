"""How much a link between regions carries, learned by probes where nobody has said it.

    planner ── ProbeLink(to) ──▶ agent a of one region ── Probe, empty, twice ──▶ agent b of another one
                                        ◀── Probed ──────────────────────────────────
                                        ── Probe, 16 KiB, then 64, then 256 ────────▶
                                        ◀── Probed: so much later than the empty one ─

What the larger one took longer than the empty one is the time of its bytes on the way; the first empty one
may have waited for a connection, so the sooner of two counts. A probe that takes ``ENOUGH_MS`` longer says it
well enough, and no larger one follows; what the largest would have taken at least counts where it took less,
so that nothing is made of a clock's last ms. An agent probes one link at a time and
rests ``REST_MS`` after it, and one probe is at most ``PROBE_BYTES_MAX``: so whoever asks for probes cannot
fill a link with them. What a link carried at best in the last ``LAST`` probes counts, for ``FRESH_MS``. The
bytes are such that no transport makes them fewer.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from elf.fields import Address, Serial
from elf.job.effects import Send
from elf.wire.base import Message

SIZES: Final = (16 << 10, 64 << 10, 256 << 10)
PROBE_BYTES_MAX: Final = sum(SIZES)
ENOUGH_MS: Final = 20
ANSWER_MS: Final = 20_000
"""After that an answer is no longer waited for."""
REST_MS: Final = 5_000
LAST: Final = 3
FRESH_MS: Final = 1_800_000
REGIONS_MAX: Final = 64


class ProbeLink(Message, frozen=True, kw_only=True):
    """To an agent: find out how much the link to the region of the agent ``to`` carries."""

    to: Address


class Probe(Message, frozen=True, kw_only=True):
    """From one region to another: answer at once, with ``Probed``."""

    number: Serial
    payload: Annotated[bytes, msgspec.Meta(max_length=SIZES[-1])] = b""


class Probed(Message, frozen=True, kw_only=True):
    """The probe of that number has come."""

    number: Serial


MESSAGES: tuple[type[Message], ...] = (ProbeLink, Probe, Probed)


class _Run:
    """One that is under way. ``size``: of the message that is; ``empty_ms``: what an empty one took (None:
    none has come back)."""

    def __init__(self, to: str, region: str) -> None:
        self.to, self.region = to, region
        self.size = 0
        self.empty_ms: int | None = None
        self.sent_ms = 0


class Probes:
    """Of one agent. ``region_of``: the region of an address, other than ours; empty: none that is known."""

    def __init__(self, region_of: Callable[[str], str]) -> None:
        self._region_of = region_of
        self._run: _Run | None = None
        self._number = 0
        self._rests_to_ms = 0
        self._rates: dict[str, deque[tuple[int, float]]] = {}
        self.bytes = 0
        """Sent since the start."""

    def asked(self, to: str, now_ms: int) -> list[Send]:
        """Probe the link to an agent's region, unless we probe another one, or rest."""
        region, run = self._region_of(to), self._run
        if run is not None and now_ms - run.sent_ms < ANSWER_MS:
            return []
        if not region or now_ms < self._rests_to_ms:
            return []
        self._run = _Run(to, region)
        self._rests_to_ms = now_ms + REST_MS
        return self._send(self._run, 0, now_ms)

    def heard(self, sender: str, message: Probe) -> list[Send]:
        """Whoever probes the link to us is answered."""
        return [Send(sender, Probed(number=message.number))] if self._region_of(sender) else []

    def answered(self, sender: str, message: Probed, now_ms: int) -> list[Send]:
        run = self._run
        if run is None or (sender, message.number) != (run.to, self._number):
            return []
        took_ms = now_ms - run.sent_ms
        if took_ms > ANSWER_MS:
            self._run = None
            return []
        if run.empty_ms is None:
            run.empty_ms = took_ms
            return self._send(run, 0, now_ms)
        if run.size == 0:
            run.empty_ms = min(run.empty_ms, took_ms)
            return self._send(run, SIZES[0], now_ms)
        longer_ms = took_ms - run.empty_ms
        if longer_ms < ENOUGH_MS and run.size < SIZES[-1]:
            return self._send(run, SIZES[SIZES.index(run.size) + 1], now_ms)
        self._learn(run.region, 1_000 * run.size / max(ENOUGH_MS, longer_ms), now_ms)
        self._run, self._rests_to_ms = None, now_ms + REST_MS
        return []

    def rates(self, now_ms: int) -> dict[str, float]:
        """Bytes a second to each region that was probed of late."""
        self._rates = {
            region: fresh
            for region, known in self._rates.items()
            if (fresh := deque((one for one in known if now_ms - one[0] <= FRESH_MS), LAST))
        }
        return {region: max(rate for _, rate in known) for region, known in self._rates.items()}

    def _learn(self, region: str, rate: float, now_ms: int) -> None:
        if region in self._rates or len(self._rates) < REGIONS_MAX:
            self._rates.setdefault(region, deque(maxlen=LAST)).append((now_ms, rate))

    def _send(self, run: _Run, size: int, now_ms: int) -> list[Send]:
        self._number += 1
        run.size, run.sent_ms = size, now_ms
        self.bytes += size
        payload = hashlib.shake_128(self._number.to_bytes(8, "big")).digest(size)
        return [Send(run.to, Probe(number=self._number, payload=payload))]
