"""Probes on behalf of others (SWIM's ping-req): before somebody buries a suspect, we look too, and tell.

Rules: an errand never makes us suspect the target ourselves; what is remembered is bounded, and one asker too
many is simply not answered: it has asked others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from overlay.context import Context
from overlay.ids import Peer
from overlay.liveness import Liveness
from overlay.messages import Ping, ProbeReport, ProbeRequest

_ERRANDS_MAX = 64
_ASKERS_MAX = 8


@dataclass
class _Errand:
    """A target that was asked at ``since`` for these."""

    target: Peer
    since: int
    askers: dict[int, Peer] = field(default_factory=dict)


class Errands:
    """Targets by id, timer ``errand``. ``watched`` tells whether a peer owes us heartbeats."""

    def __init__(self, context: Context, liveness: Liveness, watched: Callable[[Peer], bool]) -> None:
        self._context = context
        self._liveness = liveness
        self._watched = watched
        self._errands: dict[int, _Errand] = {}

    def asked(self, message: ProbeRequest) -> None:
        """Somebody gets no answer from the target."""
        target, me, now = message.target, self._context.me, self._context.now
        errand = self._errands.get(target.id)
        if target.id == me.id:
            self._context.send(message.sender, ProbeReport(me, me, True, False, 0))
            return
        if errand is None:
            if len(self._errands) >= _ERRANDS_MAX:
                return
            errand = self._errands[target.id] = _Errand(target, now)
            self._context.send(target, Ping(me, now))
            self._context.agenda.set(("errand", target.id), now + self._context.config.probe_ms)
        if len(errand.askers) < _ASKERS_MAX:
            errand.askers[message.sender.id] = message.sender

    def heard(self, peer: Peer) -> None:
        """A peer spoke to us: those who asked for it may know."""
        errand = self._errands.get(peer.id)
        if errand is not None and errand.target == peer:
            self._report(errand, ProbeReport(self._context.me, peer, True, False, 0))

    def due(self, node: int, late: bool) -> None:
        """The target has not answered us either. ``late``: or we slept, and know nothing."""
        errand = self._errands[node]
        if late:
            del self._errands[node]
            return
        target = errand.target
        watched = self._liveness.live.get(node) == target and self._watched(target)
        silent_ms = self._liveness.silence(target) if watched else 0
        self._report(errand, ProbeReport(self._context.me, target, False, watched, silent_ms))

    def abandon(self) -> None:
        """Forget all; the deadlines are gone already."""
        self._errands.clear()

    def _report(self, errand: _Errand, report: ProbeReport) -> None:
        self._context.agenda.cancel(("errand", errand.target.id))
        del self._errands[errand.target.id]
        for asker in errand.askers.values():
            self._context.send(asker, report)
