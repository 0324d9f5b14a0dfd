"""The last stamps of an agent (``elf.job.stamps``), by flow and job: bounded, and in memory alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeVar

from elf.job.stamps import LAST, RootStamp, SealStamp, StampStatus, WindowStamp

T = TypeVar("T")
KEPT_MAX: Final = 512
"""Flows, and jobs, of which stamps are kept: those of which the newest are. Some 10 MB at most."""


class Stamps:
    """``old`` are counted, by flow."""

    def __init__(self) -> None:
        self._seals: dict[str, deque[SealStamp]] = {}
        self._roots: dict[str, deque[RootStamp]] = {}
        self._windows: dict[str, deque[WindowStamp]] = {}
        self._old: dict[str, int] = {}

    def sealed(self, stamp: SealStamp) -> None:
        _kept(self._seals, stamp.flow, stamp)

    def committed(self, stamp: RootStamp) -> None:
        _kept(self._roots, stamp.flow, stamp)

    def made(self, stamp: WindowStamp) -> None:
        _kept(self._windows, stamp.job, stamp)

    def old(self, flow: str) -> None:
        count = self._old.pop(flow, 0)
        self._old[flow] = count + 1
        if len(self._old) > KEPT_MAX:
            del self._old[next(iter(self._old))]

    def of(self, agent: str, flows: Iterable[str], jobs: Iterable[str]) -> StampStatus:
        flows = tuple(flows)
        return StampStatus(
            agent,
            _all(self._seals, flows),
            _all(self._roots, flows),
            _all(self._windows, jobs),
            sum(self._old.get(uid, 0) for uid in flows),
        )


def _kept(known: dict[str, deque[T]], uid: str, stamp: T) -> None:
    last = known.pop(uid, None) or deque[T](maxlen=LAST)
    last.append(stamp)
    known[uid] = last
    if len(known) > KEPT_MAX:
        del known[next(iter(known))]


def _all(known: dict[str, deque[T]], uids: Iterable[str]) -> tuple[T, ...]:
    return tuple(stamp for uid in uids for stamp in known.get(uid, ()))
