"""Who begins a new flow, gathered on the way up its tree.

All members of a stream begin a new flow within a few ms of each other, and its home waits for them. A word
from each, straight to it, would keep the home of 1,280 agents busy for 100 ms, and what is urgent would wait
behind them: so a node holds what it hears for ``GATHER_MS``, and sends it to its parent together with its
own. Words about a flow that has not come to this node's log wait for it.

Nothing rests on it: with its next beat everybody says the same straight to the home (``uplink``), also to one
whose parent is dead, or of an elf that knows no such words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from elf.job.effects import Send
from elf.job.messages import Began, Begun, FlowBegun
from elf.job.spec import Flow

GATHER_MS: Final = 5
FORGET_MS: Final = 1_000
"""Words wait for so long for a flow that is not here; by then they have been said again."""


@dataclass
class _Words:
    """Of one flow: when they go on, and until when they matter."""

    due_ms: int
    until_ms: int
    members: dict[int, Began] = field(default_factory=dict)


class Beginning:
    """``flow_of``: a flow of this node's log, or None; ``parent_of`` looks into the overlay's trees."""

    def __init__(
        self, flow_of: Callable[[str], Flow | None], parent_of: Callable[[bytes], str | None]
    ) -> None:
        self._flow_of = flow_of
        self._parent_of = parent_of
        self._words: dict[str, _Words] = {}

    def add(self, begun: FlowBegun, now_ms: int) -> None:
        """Ours, or what a child has gathered."""
        words = self._words.setdefault(begun.flow, _Words(now_ms + GATHER_MS, now_ms + FORGET_MS))
        words.members.update((one.member, one) for one in begun.members)

    def deadline(self) -> int | None:
        """Words of a flow that is not here are due when it comes, or are said again."""
        waits = (
            words.due_ms if self._flow_of(uid) is not None else words.until_ms
            for uid, words in self._words.items()
        )
        return min(waits, default=None)

    def tick(self, now_ms: int) -> list[Send]:
        """What has waited long enough, to our parents in the trees, or to homes where there is none."""
        found: dict[str, list[FlowBegun]] = {}
        for uid, words in [one for one in self._words.items() if now_ms >= one[1].due_ms]:
            flow = self._flow_of(uid)
            if flow is None and now_ms < words.until_ms:
                continue
            del self._words[uid]
            if flow is not None:
                begun = FlowBegun(uid, tuple(words.members.values()))
                found.setdefault(self._parent_of(flow.topic) or flow.home, []).append(begun)
        return [Send(to, Begun(flows=tuple(flows))) for to, flows in found.items()]
