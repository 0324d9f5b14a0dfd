"""The language of ``tests/overlay/scripts/*.txt``: each line makes something happen in a world, or shows it.

A script is a list of blocks: commands, a line ``----``, what they showed. Nodes are numbers (``3`` is n3) or
``all``; an empty line ends a block; a comment begins with ``#``.
The world has a latency of 2 ms and one seed, so what is shown is always the same, times included.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from lab.overlay.oracles import closest, tree_faults, wrong_leaf_sets
from lab.overlay.world import Simulator, constant
from overlay import (
    Delivered,
    Effect,
    JoinFailed,
    Multicasted,
    PeerDown,
    PeerUp,
    Ready,
    TreeChanged,
    key_of,
)
from overlay.ids import to_int
from tests.support.worlds import SIZE, names

SEPARATOR = "----"


@dataclass(frozen=True)
class Block:
    """Commands (and comments) as written, and what they are expected to show."""

    commands: tuple[str, ...]
    expected: tuple[str, ...]


def parse(text: str) -> list[Block]:
    """Blocks of a script. ValueError for one without a separator."""
    blocks = []
    for part in text.strip().split("\n\n"):
        lines = part.strip().splitlines()
        if SEPARATOR not in lines:
            raise ValueError(f"no {SEPARATOR} in the block that begins with {lines[0]!r}")
        place = lines.index(SEPARATOR)
        blocks.append(Block(tuple(lines[:place]), tuple(lines[place + 1 :])))
    return blocks


def render(blocks: list[Block]) -> str:
    return "\n\n".join("\n".join((*b.commands, SEPARATOR, *b.expected)) for b in blocks) + "\n"


class Stage:
    """Performs commands, and keeps the names of topics."""

    def __init__(self) -> None:
        self._world = Simulator(random.Random(1), latency=constant(2), check=True)
        self._topics: dict[bytes, str] = {}
        self._seen: dict[str, int] = {}
        self._commands: dict[str, Callable[..., list[str]]] = {
            "add-nodes": self._add_nodes,
            "crash": self._each(self._world.crash),
            "leave": self._each(self._world.leave),
            "restart": self._each(self._restart),
            "stall": self._stall,
            "partition": self._partition,
            "heal": self._heal,
            "run": self._run,
            "stabilize": self._stabilize,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "host": self._host,
            "multicast": self._multicast,
            "route": self._route,
            "ring": self._ring,
            "leaves": self._leaves,
            "tree": self._tree,
            "trace": self._trace,
        }

    def perform(self, block: Block) -> tuple[str, ...]:
        """What the commands of a block show."""
        shown: list[str] = []
        for line in block.commands:
            command, *arguments = line.partition("#")[0].split() or [""]
            if command:
                shown += self._commands[command](*arguments)
        return tuple(shown)

    # -- what happens ----------------------------------------------------------------------------------------

    def _add_nodes(self, count: str) -> list[str]:
        first = len(self._world.nodes)
        for number in range(first, first + int(count)):
            self._world.add(f"n{number}", ["n0"])
        return []

    def _each(self, action: Callable[[str], object]) -> Callable[..., list[str]]:
        def command(*nodes: str) -> list[str]:
            for node in self._nodes(nodes):
                action(node)
            return []

        return command

    def _restart(self, node: str) -> None:
        self._world.add(node, [name for name in names(self._world) if name != node][:1])

    def _stall(self, node: str, ms: str) -> list[str]:
        self._world.stall(f"n{node}", int(ms))
        return []

    def _partition(self, *sides: str) -> list[str]:
        self._world.partition(*([f"n{node}" for node in side.split(",")] for side in sides))
        return []

    def _heal(self) -> list[str]:
        self._world.heal()
        return []

    def _run(self, ms: str) -> list[str]:
        self._world.run(int(ms))
        return []

    def _stabilize(self) -> list[str]:
        world, start = self._world, self._world.now
        calm = world.run_until(lambda: world.all_ready() and not wrong_leaf_sets(world, SIZE), 60_000, 10)
        state = "rests" if calm else "does not rest"
        return [f"ring of {len(names(world))} {state} after {world.now - start} ms"]

    def _subscribe(self, *arguments: str) -> list[str]:
        *nodes, topic = (a for a in arguments if not a.startswith("host="))
        top = next((f"n{a.removeprefix('host=')}" for a in arguments if a.startswith("host=")), None)
        for name in self._nodes(nodes):
            overlay = self._world.nodes[name].overlay
            self._world.perform(name, overlay.subscribe(self._topic(topic), self._world.now, host=top))
        return []

    def _unsubscribe(self, *arguments: str) -> list[str]:
        *nodes, topic = arguments
        for name in self._nodes(nodes):
            overlay = self._world.nodes[name].overlay
            self._world.perform(name, overlay.unsubscribe(self._topic(topic), self._world.now))
        return []

    def _host(self, node: str, topic: str) -> list[str]:
        overlay = self._world.nodes[f"n{node}"].overlay
        self._world.perform(f"n{node}", overlay.host(self._topic(topic), self._world.now))
        return []

    # -- what is shown ---------------------------------------------------------------------------------------

    def _multicast(self, topic: str, payload: str) -> list[str]:
        world, key = self._world, self._topic(topic)
        before = world.multicasts.copy()
        for overlay in world.running():
            if overlay.is_root(key):
                world.perform(overlay.me.address, overlay.multicast(key, payload.encode(), world.now))
        world.run(100)
        heard = sorted((world.multicasts - before).items(), key=lambda item: _number(item[0][0]))
        return [" ".join(f"{name}×{times}" for (name, _, _), times in heard) or "nobody"]

    def _route(self, node: str, text: str) -> list[str]:
        world, key = self._world, key_of(text.encode())
        before = len(world.deliveries)
        world.perform(f"n{node}", world.nodes[f"n{node}"].overlay.route(key, b"", world.now))
        world.run_until(lambda: len(world.deliveries) > before, 20_000, 1)
        ends = [f"{d.at} after {d.effect.hops} hops" for d in world.deliveries[before:]]
        return [f"n{node} to {text}: {', '.join(ends)}; closest is {closest(world, key)}"]

    def _ring(self) -> list[str]:
        ring = sorted(self._world.running(), key=lambda overlay: overlay.me.id)
        return [f"{o.me.id >> 112:04x} {o.me.address} {o.state.name.lower()}" for o in ring]

    def _leaves(self, node: str) -> list[str]:
        return [" ".join(peer.address for peer in self._world.nodes[f"n{node}"].overlay.leaf_set())]

    def _tree(self, topic: str) -> list[str]:
        key = self._topic(topic)
        world = self._world
        tops = [o for o in world.running() if key in o.topics() and o.parent(key) is None]
        shown = [f"{topic} at {to_int(key) >> 112:04x}, closest is {closest(world, key)}"]
        for overlay in tops:
            shown += self._below(key, overlay.me.address, "root" if overlay.is_root(key) else "orphan", 1)
        faults = [fault for fault in tree_faults(world, key, []) if "orphan" not in fault]
        return shown + [f"  fault: {fault}" for fault in faults]

    def _below(self, key: bytes, name: str, note: str, depth: int) -> list[str]:
        lines = [f"{'  ' * depth}{name} {note}".rstrip()]
        node = self._world.nodes[name]
        for child in sorted(node.overlay.children(key), key=_number):
            lines += self._below(key, child, "" if self._world.nodes[child].alive else "(down)", depth + 1)
        return lines

    def _trace(self, *nodes: str) -> list[str]:
        lines = []
        for name in self._nodes(nodes):
            effects = self._world.nodes[name].effects
            lines += [f"{name}: {self._told(e)}" for e in effects[self._seen.get(name, 0) :]]
            self._seen[name] = len(effects)
        return lines

    def _told(self, effect: Effect) -> str:
        match effect:
            case PeerUp(peer):
                return f"{peer.address} up, incarnation {peer.incarnation}"
            case PeerDown(peer, reason):
                return f"{peer.address} {reason}, incarnation {peer.incarnation}"
            case TreeChanged(topic, parent, children):
                below = ", ".join(sorted(children, key=_number)) or "nobody"
                return f"{self._topics[topic]}: below {parent or 'nobody'}, above {below}"
            case Multicasted(topic, payload):
                return f"{self._topics[topic]}: heard {payload.decode()}"
            case Delivered(_, _, origin, hops):
                return f"delivered from {origin} after {hops} hops"
            case Ready():
                return "ready"
            case JoinFailed(contacts, reason):
                return f"join through {', '.join(contacts)} failed: {reason}"
            case _:
                raise AssertionError(effect)

    # -- the parts -------------------------------------------------------------------------------------------

    def _nodes(self, words: list[str] | tuple[str, ...]) -> list[str]:
        return names(self._world) if list(words) == ["all"] else [f"n{word}" for word in words]

    def _topic(self, text: str) -> bytes:
        key = key_of(text.encode())
        self._topics[key] = text
        return key


def _number(name: str) -> int:
    return int(name.removeprefix("n"))
