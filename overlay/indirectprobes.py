"""Probes on behalf of others (SWIM's ping-req): before a node declares a suspect dead, others probe it too,
and report.

Rules: an indirect probe never makes us suspect the target ourselves. What is remembered is bounded; an asker
beyond the bound gets no answer, as it has asked others too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from overlay.context import Context
from overlay.ids import Peer
from overlay.liveness import Liveness
from overlay.messages import Ping, ProbeReport, ProbeRequest

_INDIRECT_PROBES_MAX = 64
_ASKERS_MAX = 8


@dataclass
class _IndirectProbe:
    """A target that was probed at ``since`` for these askers."""

    target: Peer
    since: int
    askers: dict[int, Peer] = field(default_factory=dict)


class IndirectProbes:
    """Targets by id, timer ``indirect_probe``. ``watched`` tells whether a peer owes us heartbeats."""

    def __init__(self, context: Context, liveness: Liveness, watched: Callable[[Peer], bool]) -> None:
        self._context = context
        self._liveness = liveness
        self._watched = watched
        self._indirect_probes: dict[int, _IndirectProbe] = {}

    def asked(self, message: ProbeRequest) -> None:
        """A peer gets no answer from the target."""
        target, me, now = message.target, self._context.me, self._context.now
        indirect_probe = self._indirect_probes.get(target.id)
        if target.id == me.id:
            self._context.send(message.sender, ProbeReport(me, me, True, False, 0))
            return
        if indirect_probe is None:
            if len(self._indirect_probes) >= _INDIRECT_PROBES_MAX:
                return
            indirect_probe = self._indirect_probes[target.id] = _IndirectProbe(target, now)
            self._context.send(target, Ping(me, now))
            self._context.timers.set(("indirect probe", target.id), now + self._context.config.probe_ms)
        if len(indirect_probe.askers) < _ASKERS_MAX:
            indirect_probe.askers[message.sender.id] = message.sender

    def heard(self, peer: Peer) -> None:
        """A peer spoke to us: tell those who asked for it."""
        indirect_probe = self._indirect_probes.get(peer.id)
        if indirect_probe is not None and indirect_probe.target == peer:
            self._report(indirect_probe, ProbeReport(self._context.me, peer, True, False, 0))

    def due(self, node: int, late: bool) -> None:
        """The target has not answered us either. ``late``: we slept, and know nothing."""
        indirect_probe = self._indirect_probes[node]
        if late:
            del self._indirect_probes[node]
            return
        target = indirect_probe.target
        watched = self._liveness.live.get(node) == target and self._watched(target)
        silent_ms = self._liveness.silence(target) if watched else 0
        self._report(indirect_probe, ProbeReport(self._context.me, target, False, watched, silent_ms))

    def abandon(self) -> None:
        """Forget all; the deadlines are gone already."""
        self._indirect_probes.clear()

    def _report(self, indirect_probe: _IndirectProbe, report: ProbeReport) -> None:
        self._context.timers.cancel(("indirect probe", indirect_probe.target.id))
        del self._indirect_probes[indirect_probe.target.id]
        for asker in indirect_probe.askers.values():
            self._context.send(asker, report)
