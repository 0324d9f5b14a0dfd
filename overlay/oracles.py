"""What must be true of a world that has come to rest: slow, obvious, and knowing everything."""

from __future__ import annotations

from collections.abc import Sequence

from overlay.ids import clockwise, closeness, to_int
from overlay.node import Overlay
from overlay.world import Simulator


def closest(world: Simulator, key: bytes) -> str:
    """Address of the running node numerically closest to a key."""
    number = to_int(key)
    return min(world.running(), key=lambda overlay: closeness(number, overlay.me.id)).me.address


def wrong_leaf_sets(world: Simulator, size: int) -> list[str]:
    """The nodes whose leaf set is not the sorted truth."""
    ring = sorted(world.running(), key=lambda overlay: overlay.me.id)
    return [o.me.address for o in ring if set(o.leaf_set()) != _true_leaves(o, ring, size)]


def _true_leaves(overlay: Overlay, ring: Sequence[Overlay], size: int) -> set[object]:
    others = [other.me for other in ring if other is not overlay]
    others.sort(key=lambda peer: clockwise(overlay.me.id, peer.id))
    return set(others) if len(others) <= size else {*others[: size // 2], *others[-(size // 2) :]}


def tree_faults(world: Simulator, topic: bytes, subscribers: Sequence[str]) -> list[str]:
    """What is wrong with a topic's tree: not one root, bonds that only one end knows, circles, subscribers
    cut off."""
    members = {overlay.me.address: overlay for overlay in world.running() if topic in overlay.topics()}
    roots = [address for address, overlay in members.items() if overlay.is_root(topic)]
    faults = [] if len(roots) == 1 else [f"roots {sorted(roots)}"]
    for address, overlay in members.items():
        parent = overlay.parent(topic)
        if parent is None and address not in roots:
            faults.append(f"{address} is an orphan")
        if parent is not None and (parent not in members or address not in members[parent].children(topic)):
            faults.append(f"{parent} does not know its child {address}")
        faults.extend(
            f"{child} does not know its parent {address}"
            for child in overlay.children(topic)
            if child not in members or members[child].parent(topic) != address
        )
    reached = _below(members, topic, roots)
    faults.extend(f"{address} is cut off" for address in subscribers if address not in reached)
    faults.extend(f"{address} is not below a root" for address in members if address not in reached)
    return faults


def _below(members: dict[str, Overlay], topic: bytes, roots: Sequence[str]) -> set[str]:
    reached: set[str] = set()
    front = list(roots)
    while front:
        address = front.pop()
        if address not in reached and address in members:
            reached.add(address)
            front.extend(members[address].children(topic))
    return reached
