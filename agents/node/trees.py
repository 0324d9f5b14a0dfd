"""The trees in which this agent is: as a worker of flows over its streams, and as the root of those that are
committed here.

The stream log says which flows there are and where their homes are. A home that moves takes the root of its
flows along; all others hang below the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import overlay as ring
from agents.node.keeping import Keeping, Step
from elf.job.commands import Install, Uninstall
from elf.job.effects import Work
from elf.job.log.streamlog import StreamLog
from elf.job.rollup.flowroots import FlowRoots
from elf.job.rollup.uplink import Uplink
from elf.job.spec import Flow


class Trees:
    """Of the agent with these streams. ``installed``: what its lanes compute from an earlier life, (stream,
    flow). ``running``: the flows in whose trees it is, by uid."""

    def __init__(
        self,
        streams: Sequence[str],
        log: StreamLog,
        overlay: ring.Overlay,
        keeping: Keeping,
        uplink: Uplink,
        roots: FlowRoots,
        installed: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._streams = frozenset(streams)
        self._log = log
        self._overlay = overlay
        self._keeping = keeping
        self._uplink = uplink
        self._roots = roots
        self._installed = {uid: stream for stream, uid in sorted(installed)}
        self._hosted: dict[str, bytes] = {}
        self._on_ring = False
        self.running: dict[str, Flow] = {}

    def on_ring(self, now_ms: int) -> list[Step]:
        """The ring has us, newly or again."""
        self._on_ring = True
        self._hosted.clear()
        return self.begin(now_ms)

    def begin(self, now_ms: int) -> list[Step]:
        """Be the root of flows that are ours to commit, and run those over streams of ours."""
        found: list[Step] = []
        for uid, topic in self._roots.topics().items():
            if self._on_ring and uid not in self._hosted:
                self._hosted[uid] = topic
                found.extend(self._overlay.host(topic, now_ms))
                root = self._roots.get(uid)
                found.extend(self._keeping.take_part(root.flow.fragment.stream, now_ms) if root else ())
        for flow in self.ours():
            if flow.uid not in self.running:
                self.running[flow.uid] = flow
                self._installed[flow.uid] = flow.fragment.stream
                self._uplink.add(flow)
                found.append(Work(flow.fragment.stream, Install(flow)))
                found.extend(self._overlay.subscribe(flow.topic, now_ms, home=flow.home))
        return found

    def ours(self) -> list[Flow]:
        """The flows over streams of which we are a member."""
        named = [(flow, flow.fragment.stream) for flow in self._log.flows()]
        number = self._keeping.membership.number
        return [flow for flow, stream in named if stream in self._streams and number(stream) is not None]

    def end(self, now_ms: int) -> list[Step]:
        """Stop what the log says has ended: as a worker, as an inner node, as the root. After a restart the
        log may say so before we are in the flow's tree."""
        found: list[Step] = []
        for flow in self._uplink.flows():
            if self._log.flow(flow.uid) is None:
                found.extend(self._uplink.remove(flow.uid))
        for uid in [uid for uid in self._installed if self._log.flow(uid) is None]:
            found.append(Work(self._installed.pop(uid), Uninstall(uid)))
            if uid in self.running:
                found.extend(self._overlay.unsubscribe(self.running.pop(uid).topic, now_ms))
        for uid in [uid for uid in self._hosted if self._log.flow(uid) is None]:
            found.extend(self._overlay.unhost(self._hosted.pop(uid), now_ms))
        return found

    def moved(self, job: str, now_ms: int) -> list[Step]:
        """A home is elsewhere now: send there what its flows have, hang below it in their trees."""
        found: list[Step] = []
        for flow in [flow for flow in self._log.flows() if self._log.homes.of(flow.uid) == job]:
            self._uplink.rehome(flow)
            if flow.uid in self.running:
                self.running[flow.uid] = flow
            if self._roots.get(flow.uid) is not None:
                continue
            if flow.uid in self._hosted:
                found.extend(self._overlay.unhost(self._hosted.pop(flow.uid), now_ms, flow.home))
            found.extend(self._overlay.rehome(flow.topic, flow.home, now_ms))
        return found

    def planted(self, topic: bytes, now_ms: int) -> list[Step]:
        """We are in a tree in another way, or newly: see that it knows its home, which may have moved."""
        homes = [flow.home for flow in self._log.flows() if flow.topic == topic]
        return list(self._overlay.rehome(topic, homes[0], now_ms)) if homes else []
