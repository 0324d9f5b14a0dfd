"""Which nodes a node takes as children in a tree, and where it sends the others."""

from __future__ import annotations

from overlay.context import Context
from overlay.ids import Peer, key_of, to_int
from overlay.pastry import Pastry
from overlay.proximity import steps
from overlay.regions import Regions
from overlay.tree import PATH_MAX, Tree
from overlay.treemessages import Subscribe


def scattered(asker: Peer, child: Peer) -> int:
    """Nearness where nothing is measured: by a hash of both. All children get equal shares, which makes the
    least deep tree (500 nodes: 4 levels; 6 by closeness of ids, since shares of the ring differ)."""
    return to_int(key_of(f"{asker.address} below {child.address}".encode()))


class Admission:
    """The admission decisions of a node. It changes nothing."""

    def __init__(self, context: Context, pastry: Pastry, regions: Regions) -> None:
        self._context = context
        self._pastry = pastry
        self._regions = regions

    def objection(self, message: Subscribe, tree: Tree | None, attached: bool) -> str:
        """Why the asker cannot be our child; empty if it can. ``attached``: we have a parent or are the
        root."""
        asker = message.sender
        if tree is not None and tree.hosting:
            return ""
        if message.direct:
            return "not the host"
        if len(message.path) >= PATH_MAX or (
            self._context.me.address in message.path and not self._takes_over(message, tree)
        ):
            return "loop"
        below_asker = tree is not None and (asker.address in tree.path or tree.asked == asker.address)
        if message.pushed:
            if below_asker:
                return "loop"
            known = tree is not None and asker.id in tree.children
            return "" if attached or known else "not in the tree"
        if below_asker and self._pastry.next_hop(to_int(message.topic)).id == asker.id:
            return "loop"
        return ""

    def _takes_over(self, message: Subscribe, tree: Tree | None) -> bool:
        """Whether we take over as the parent of an asker whose path holds us: that it once asked, or became
        root, for us too closes no loop. Either it is the former root, below which we hang, and we leave our
        parent for it; or there is no longer a parent above us, nor a request for one."""
        former = tree is not None and message.sender.address in tree.path and not message.pushed
        alone = tree is None or (tree.parent is None and not tree.asked)
        mine = message.host in ("", self._context.me.address)
        return (
            (former or alone) and mine and self._pastry.next_hop(to_int(message.topic)).id == self._context.id
        )

    def full(self, tree: Tree) -> bool:
        """Whether there is no room for another child."""
        return len(tree.children) >= self._context.config.fanout_max

    def instead(self, tree: Tree, message: Subscribe) -> str:
        """The child to which a full node sends an asker: one in the asker's rack, or in its region, if there
        is any; where trees go by regions then one in ours; among several by a hash of both. It is alive;
        empty without one."""
        suspect_ms, liveness = self._context.config.suspect_ms, self._pastry.liveness
        fit = [
            child.peer
            for child in tree.children.values()
            if liveness.silence(child.peer) < suspect_ms and child.peer.address not in message.path
        ]
        place_of = self._pastry.proximity.place
        nearest = min(
            fit,
            key=lambda child: (
                steps(message.place, place_of(child.id)),
                self._regions.crosses(child.address),
                scattered(message.sender, child),
            ),
            default=None,
        )
        return nearest.address if nearest is not None else ""
