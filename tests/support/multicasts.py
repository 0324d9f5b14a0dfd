"""What roots of trees say, and whether everyone hears it once and in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lab.overlay.world import Simulator
from overlay import Missed, Multicasted, Peer, key_of

TOPIC = key_of(b"clicks")


@dataclass
class Story:
    """A world in which the root speaks, and what each root has said so far."""

    world: Simulator
    said: Counter[Peer] = field(default_factory=Counter)

    def say(self, times: int = 1, every_ms: int = 0) -> None:
        """Whoever takes itself for the root says its name and a number."""
        for _ in range(times):
            for overlay in self.world.running():
                if overlay.is_root(TOPIC):
                    me = overlay.me
                    self.said[me] += 1
                    text = f"{me.address} {me.incarnation} {self.said[me]}".encode()
                    self.world.perform(me.address, overlay.multicast(TOPIC, text, self.world.now))
            self.world.run(every_ms)

    def heard(self, name: str) -> dict[Peer, list[tuple[int, int, bool]]]:
        """By root: (first, last, given out or missed) in the order told."""
        found: dict[Peer, list[tuple[int, int, bool]]] = {}
        for effect in self.world.nodes[name].effects:
            if isinstance(effect, Multicasted):
                address, incarnation, number = effect.payload.decode().split()
                found.setdefault(Peer(address, int(incarnation)), []).append((int(number), int(number), True))
            elif isinstance(effect, Missed):
                found.setdefault(effect.root, []).append((effect.first, effect.last, False))
        return found

    def missed(self, name: str) -> int:
        return sum(b - a + 1 for told in self.heard(name).values() for a, b, given in told if not given)

    def verify(self, name: str) -> None:
        """Every number of every root once, in order."""
        heard = self.heard(name)
        for root, last in self.said.items():
            tiles = [n for a, b, _ in heard.get(root, []) for n in range(a, b + 1)]
            assert tiles == list(range(1, last + 1)), (name, root, heard.get(root), last)
