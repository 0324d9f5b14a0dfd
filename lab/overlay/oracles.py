"""What must be true of a world that has come to rest: slow, obvious, and knowing everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sortedcontainers import SortedDict

from lab.overlay.world import Simulator
from overlay.ids import RING, clockwise, closeness, to_int, to_key
from overlay.node import Overlay


def closest(world: Simulator, key: bytes) -> str:
    """Address of the running node numerically closest to a key."""
    number, ring = to_int(key), world.ring
    place = ring.bisect_left(number)
    around = (ring.peekitem(place - 1)[1], ring.peekitem(place % len(ring))[1])
    best: Overlay = min(around, key=lambda overlay: closeness(number, overlay.me.id))
    return best.me.address


def closest_ready(world: Simulator, key: bytes) -> str | None:
    """Address of the running node closest to a key among those that have become ready; None without any."""
    number, ring = to_int(key), world.ring
    above = ring.bisect_left(number)
    ahead = _first_ready(ring, range(above, above + len(ring)))
    behind = _first_ready(ring, range(above - 1, above - 1 - len(ring), -1))
    if ahead is None or behind is None:
        return None
    return min((ahead, behind), key=lambda overlay: closeness(number, overlay.me.id)).me.address


def _first_ready(ring: SortedDict[int, Overlay], places: Iterable[int]) -> Overlay | None:
    overlays = (ring.peekitem(place % len(ring))[1] for place in places)
    return next((overlay for overlay in overlays if overlay.ready), None)


def wrong_leaf_sets(world: Simulator, size: int) -> list[str]:
    """The nodes whose leaf set is not the sorted truth."""
    ring = list(world.ring.values())
    peers = [overlay.me for overlay in ring]
    reach = min(size // 2, len(ring))
    round_about = [*peers[-reach:], *peers, *peers[:reach]]
    wrong = []
    for place, overlay in enumerate(ring):
        if len(ring) <= size + 1:
            truth = {*peers} - {overlay.me}
        else:
            truth = {
                *round_about[place : place + reach],
                *round_about[place + reach + 1 : place + 2 * reach + 1],
            }
        if set(overlay.leaf_set()) != truth:
            wrong.append(overlay.me.address)
    return wrong


def overlapping_claims(world: Simulator) -> list[tuple[str, str]]:
    """Pairs of live nodes, neighbours among those that act for keys now, that would act for the same one.

    A node's claim reaches half the way to the neighbours that it knows. Only neighbouring claims are
    compared: one that reaches over a whole other claim meets that one too. Cost: O(N log N).
    """
    acting = [o for o in world.running() if o.acts_for(to_key(o.me.id), world.now)]
    acting.sort(key=lambda overlay: overlay.me.id)
    if len(acting) < 2:
        return []
    following = [*acting[1:], acting[0]]
    return [
        (one.me.address, two.me.address)
        for one, two in zip(acting, following, strict=True)
        if _reach(one, forward=True) + _reach(two, forward=False) > clockwise(one.me.id, two.me.id) + 1
    ]


def _reach(overlay: Overlay, *, forward: bool) -> int:
    """Ids that a node claims on one side of itself; half the ring if it knows nobody."""
    leaves = overlay.leaf_set()
    if not leaves:
        return RING // 2
    me = overlay.me.id
    return (clockwise(me, leaves[0].id) if forward else clockwise(leaves[-1].id, me)) // 2


def tree_faults(world: Simulator, topic: bytes, subscribers: Sequence[str]) -> list[str]:
    """What is wrong with a topic's tree: not one root, tree links that only one end knows, circles,
    subscribers cut off."""
    members = {overlay.me.address: overlay for overlay in world.running() if topic in overlay.topics()}
    children = {address: frozenset(overlay.children(topic)) for address, overlay in members.items()}
    parents = {address: overlay.parent(topic) for address, overlay in members.items()}
    roots = [address for address, overlay in members.items() if overlay.is_root(topic)]
    faults = [] if len(roots) == 1 else [f"roots {sorted(roots)}"]
    for address, parent in parents.items():
        if parent is None and address not in roots:
            faults.append(f"{address} is an orphan")
        if parent is not None and address not in children.get(parent, ()):
            faults.append(f"{parent} does not know its child {address}")
        faults.extend(
            f"{child} does not know its parent {address}"
            for child in sorted(children[address])
            if parents.get(child) != address
        )
    reached = _below(children, roots)
    faults.extend(f"{address} is cut off" for address in subscribers if address not in reached)
    faults.extend(f"{address} is not below a root" for address in members if address not in reached)
    return faults


def _below(children: Mapping[str, frozenset[str]], roots: Sequence[str]) -> set[str]:
    reached: set[str] = set()
    front = list(roots)
    while front:
        address = front.pop()
        if address not in reached and address in children:
            reached.add(address)
            front.extend(children[address])
    return reached
