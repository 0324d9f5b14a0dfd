"""The ring: leaf set and routing table, kept correct by probes and exchanges, and the choice of the next hop.

After "Performance and Dependability of Structured Peer-to-Peer Overlays" (Castro, Costa, Rowstron 2004)
rather than the first Pastry paper: a peer enters the leaf set only when it has spoken to us; a node that asks
for a leaf set shows its own; new nodes in an answer are asked in turn. So parallel joins converge without any
order among them.

Each node watches its two ring neighbours (``neighbours``) and its neighbours in trees. A node that finds a
death tells its leaf set, whose members check for themselves. Rows are compared with the entry that was silent
longest and with near nodes in turn; after a death, the whole table is swept. All of this is repeated
periodically as well, since a purely reactive ring does not survive churn (Bamboo).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sortedcontainers import SortedSet

from overlay.context import Context
from overlay.errors import OverlayBug
from overlay.ids import Peer, clockwise, closeness, distance, node_id, shared_digits
from overlay.leafset import LeafSet, gap, reach
from overlay.liveness import Evidence, Liveness, Sighting
from overlay.messages import (
    LeafProbe,
    LeafReply,
    Leave,
    Ping,
    RowReply,
    RowRequest,
)
from overlay.neighbours import Neighbours
from overlay.proximity import Proximity, Tuning
from overlay.routing import RoutingTable

_NEWS_DELAY_MS = 50
"""Deaths and returns found together are told together."""
_SWEEP_REST_MS = 20_000
"""From the beginning of one sweep of the table to the next."""


class Pastry:
    """What one node knows of the ring. ``gone`` collects the peers that died, left or restarted, until the
    node takes them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.leaves = LeafSet(context.id, context.config.leaf_set_size)
        self.table = RoutingTable(context.id, context.config.base_bits)
        self.liveness = Liveness(context, self._ask_leaves, lambda peer: self.neighbours.ask_helpers(peer))
        self.proximity = Proximity(context)
        self._tuning = Tuning(context, self.table, self.proximity, self._ask_row)
        self.neighbours = Neighbours(
            context, self.leaves, self.table, self.liveness, self.proximity, self._tuning
        )
        self._row_turn = False
        self._gone: list[Peer] = []
        self._told_dead: set[int] = set()
        self._returned: set[int] = set()
        self._row_asked: tuple[Peer, int] | None = None
        self._sweep_since: int | None = None
        self._sweep_again = False
        self._sought = ""

    def schedule(self) -> None:
        """Start all that is periodic."""
        for timer in self._periods():
            self._again(timer)

    # -- routing ---------------------------------------------------------------------------------------------

    def next_hop(self, key: int, avoid: Collection[int] = ()) -> Peer:
        """The node to hand a key to; ourselves if we are the closest that we know (Pastry section 2.3).

        Nodes in ``avoid`` are used only where there is no other way: as the closest leaf, which alone may
        deliver.
        """
        if self.leaves.covers(key):
            return self.leaves.closest(key) or self._context.me
        if not self.leaves.full:
            return self._closest_known(key)
        hop = self._by_prefix(key, avoid)
        return self._by_prefix(key, ()) if hop is self._context.me and avoid else hop

    def rows_for(self, node: int) -> list[Peer]:
        """The rows that a node with this id can use as they are: those of the digits shared with us."""
        shared = self.table.row_of(node)
        return [peer for row in range(shared + 1) for peer in self.table.row(row)]

    def neighbourhood(self) -> tuple[Peer, ...]:
        """The neighbourhood set: the nearest of all live peers, nearest first."""
        return self.proximity.nearest(self.liveness.live.values(), self._context.config.neighbourhood_size)

    def known(self, node: int) -> Peer | None:
        """The peer with that id, if it lives or (perhaps by hearsay only) stands in the routing table."""
        entry = self.table.rival(node)
        return self.liveness.live.get(node) or (entry if entry is not None and entry.id == node else None)

    def needed(self) -> set[int]:
        """Ids of all peers in the leaf set and the routing table."""
        return {peer.id for peer in self.leaves} | {peer.id for peer in self.table}

    # -- hearing ---------------------------------------------------------------------------------------------

    def hear(self, sender: Peer, joining: bool = False, showing: bool = False) -> bool:
        """Take note of a message's sender; False if the message is to be ignored.

        A ``joining`` sender is not asked to become a leaf yet: it will ask itself. One that is ``showing``
        its leaf set need not be asked for it.
        """
        before = self.liveness.live.get(sender.id)
        sighting = self.liveness.hear(sender)
        if sighting is Sighting.STALE:
            return False
        self._told_dead.discard(sender.id)
        self.neighbours.indirect_probes.heard(sender)
        if sighting is Sighting.RETURNED:
            self._returned.add(sender.id)
            self.liveness.ask_dead(self.leaves.wants)
        if sighting is Sighting.RESTARTED and before is not None:
            self._detach(before)
        if not joining:
            self._welcome(sender, showing)
        return True

    def superseded(self, joiner: Peer) -> None:
        """Somebody asks to join: what we know of an earlier incarnation of it is over."""
        known = self.liveness.live.get(joiner.id)
        if known is not None and known.incarnation < joiner.incarnation:
            self.liveness.bury(known, "crashed")
            self._detach(known)

    def learn(self, peers: Iterable[Peer], rows_only: bool = False, near: bool = False) -> None:
        """Hearsay: ask nodes that would be leaves, note those whose cell is empty. ``near``: from a near
        node.

        A set that is not full would take all nodes; so those that it is asking count as if they had answered
        (``_invite``). If one of them is dead, the farthest leaves are asked for the next node.
        """
        leaves, live, table = self.leaves, self.liveness.live, self.table
        wanted: list[Peer] = []
        for peer in peers:
            node = peer.id
            known = live.get(node)
            if known is None or known != peer:
                if not self.liveness.believes(peer):
                    continue
            elif node in leaves:
                continue
            if not rows_only and leaves.wants(node):
                wanted.append(peer)
            holder = table.rival(node)
            if holder is None:
                table.put(peer)
            else:
                self._tuning.consider(peer, holder, near)
        if wanted:
            self._invite(wanted)

    def leaf_probe(self, message: LeafProbe) -> None:
        """A peer shows its leaf set and wants ours."""
        sender = message.sender
        self._meet(sender, message.leaves, message.failed)
        neighbour, delivered = self.neighbours.grant(sender)
        leaves, failed = tuple(self.leaves), self._failed()
        self._context.send(
            sender, LeafReply(self._context.me, leaves, failed, message.stamp, neighbour, delivered)
        )

    def leaf_reply(self, message: LeafReply) -> None:
        """The leaf set that we asked for."""
        self._meet(message.sender, message.leaves, message.failed)
        self.neighbours.echoed(message.sender, message.stamp, message.neighbour)

    def row_request(self, message: RowRequest) -> None:
        """A peer shows a row and wants ours."""
        me, sender = self._context.me, message.sender
        self.proximity.placed(sender.id, message.place)
        holder = self.table.rival(sender.id)
        if holder is not None:
            self._tuning.consider(sender, holder)
        self.learn(message.peers)
        if 0 <= message.row <= self.table.row_of(sender.id):
            row = self.table.row(message.row)
            self._context.send(sender, RowReply(me, message.row, row, message.stamp, self._context.place))

    def row_reply(self, message: RowReply) -> None:
        """The row that we asked for."""
        self.proximity.placed(message.sender.id, message.place)
        self.neighbours.echoed(message.sender, message.stamp, neighbour=False)
        self.learn(message.peers, near=message.sender in self.neighbourhood())

    def left(self, message: Leave) -> None:
        """A peer leaves on purpose."""
        if self.liveness.bury(message.sender, "left"):
            self._detach(message.sender)
            self._refill(message.sender.id)
        self.learn(message.leaves)

    # -- speaking --------------------------------------------------------------------------------------------

    def introduce(self) -> None:
        """We are ready: tell those who may want us in their tables, and see their rows."""
        self.neighbours.leases.open()
        for peer in self.table:
            if peer.id not in self.leaves:
                self._ask_row(peer)

    def suspect(self, peer: Peer, evidence: Evidence = Evidence.NONE) -> None:
        """The peer did not answer another node: ask whether it lives."""
        self.liveness.probe(peer, evidence=evidence)

    def seek(self, addresses: Iterable[str]) -> None:
        """Call one node, a different one each time, of those that would be leaves of ours."""
        lost = sorted(address for address in addresses if self.leaves.wants(node_id(address)))
        if lost:
            self._sought = next((address for address in lost if address > self._sought), lost[0])
            self._context.send_to(self._sought, Ping(self._context.me, self._context.now))

    def leave(self, tree_neighbours: Iterable[Peer]) -> None:
        """Say good-bye to all that may hold us."""
        farewell = Leave(self._context.me, tuple(self.leaves))
        everybody = {peer.id: peer for peer in (*self.leaves, *self.table, *tree_neighbours)}
        for peer in everybody.values():
            self._context.send(peer, farewell)

    def abandon(self) -> None:
        """The join has failed, and all deadlines are gone."""
        self.liveness.abandon()
        self.neighbours.indirect_probes.abandon()

    # -- timers ----------------------------------------------------------------------------------------------

    def probe_due(self, node: int, late: bool) -> None:
        """A probe's time is up."""
        peer = self.liveness.unanswered(node, late)
        if peer is not None:
            self._died(peer)

    def leaf_due(self, contacts: Sequence[str]) -> None:
        """Compare leaf sets with the member that was silent longest; without any, with the closest entry;
        when alone, call the contacts."""
        context = self._context
        if len(self.leaves):
            calm = [peer for peer in self.leaves if not self.liveness.probing(peer.id)]
            oldest = max(calm, key=self.liveness.silence, default=None)
            if oldest is not None:
                self.liveness.probe(oldest, leaf=True)
        elif len(self.table):
            nearest = min(self.table, key=lambda peer: closeness(context.id, peer.id))
            self.liveness.probe(nearest, leaf=True)
        else:
            for address in contacts:
                context.send_to(address, Ping(context.me, context.now))
        self._again("leaf")

    def row_due(self) -> None:
        """Check the entry that was silent longest."""
        context = self._context
        asked, self._row_asked = self._row_asked, None
        if asked is not None and asked[0].id in self.table:
            peer, asked_at = asked
            if self.liveness.silence(peer) > context.now - asked_at:
                self.suspect(peer)
        quiet = [peer for peer in self.table if not self.liveness.probing(peer.id)]
        oldest = max(quiet, key=self.liveness.silence, default=None)
        if self._sweep_again:
            self._sweep()
        if oldest is not None and self._sweeping(oldest):
            self.suspect(oldest)
            context.timers.set(("row", 0), context.now + context.config.sweep_ms)
            return
        self._row_turn = not self._row_turn
        near = self.neighbourhood() if self._row_turn else ()
        if near:
            self._ask_row(near[context.rng.randrange(len(near))])
        elif oldest is not None:
            self._row_asked = (oldest, context.now)
            self._ask_row(oldest)
        self._again("row")

    def tune_due(self) -> None:
        """Measure a rival for a table cell."""
        wait_ms, context = self._tuning.due(), self._context
        if wait_ms < context.config.tune_ms:
            context.timers.set(("tune", 0), context.now + wait_ms)
        else:
            context.about(("tune", 0), wait_ms)

    def dead_due(self, needed: Collection[int]) -> None:
        """Ask one of the dead, and forget what is old."""
        self.liveness.ask_one_dead()
        self.liveness.forget(needed)
        self.neighbours.forget()
        self._again("dead")

    def news_due(self) -> None:
        """Show all leaves our leaf set and the dead; a leaf that does not answer is dead too."""
        for peer in tuple(self.leaves):
            self.liveness.probe(peer, leaf=True)

    def take_gone(self) -> list[Peer]:
        """Peers that have left or died since this was last asked."""
        gone, self._gone = self._gone, []
        return gone

    def check(self) -> None:
        """Raise OverlayBug unless ring state is consistent."""
        self.leaves.check()
        self.table.check()
        self.liveness.check()
        for peer in self.leaves:
            if self.liveness.live.get(peer.id) != peer:
                raise OverlayBug(f"leaf {peer} is not live")
        for peer in self.table:
            if peer.id in self.liveness.dead:
                raise OverlayBug(f"table entry {peer} is dead")

    # -- the parts -------------------------------------------------------------------------------------------

    def _periods(self) -> dict[str, int]:
        config = self._context.config
        return {
            "beat": config.beat_ms,
            "tune": config.tune_ms,
            "leaf": config.leaf_exchange_ms,
            "row": config.row_exchange_ms,
            "dead": config.dead_probe_ms,
        }

    def _again(self, timer: str) -> None:
        if timer == "beat":
            self._context.timers.set((timer, 0), self._context.every(self._periods()[timer]))
        else:
            self._context.about((timer, 0), self._periods()[timer])

    def _closest_known(self, key: int) -> Peer:
        """In a ring so small that all are leaves, or with a leaf set that has lost members: the closest of
        all known."""
        best = self.leaves.closest(key) or self._context.me
        for peer in self.table:
            if closeness(key, peer.id) < closeness(key, best.id):
                best = peer
        return best

    def _by_prefix(self, key: int, avoid: Collection[int]) -> Peer:
        entry = self.table.rival(key)
        if entry is not None and entry.id not in avoid:
            return entry
        bits = self._context.config.base_bits
        shared = self.table.row_of(key)
        best, best_distance = self._context.me, closeness(key, self._context.id)
        for peer in (*self.leaves, *self.table):
            if shared_digits(key, peer.id, bits) < shared or peer.id in avoid:
                continue
            peer_distance = closeness(key, peer.id)
            if peer_distance < best_distance:
                best, best_distance = peer, peer_distance
        return best

    def _welcome(self, peer: Peer, showing: bool) -> None:
        node = peer.id
        if not showing and self.leaves.wants(node):
            self._invite([peer])
        holder = self.table.rival(node)
        if holder is None or holder.id == node or holder.id not in self.liveness.live:
            self.table.put(peer)

    def _invite(self, peers: Iterable[Peer]) -> None:
        """Ask nodes that would be leaves for their leaf sets, the nearest first, and no more than will be
        leaves."""
        me, size = self._context.id, self._context.config.leaf_set_size
        taken = SortedSet(self.leaves.offsets)
        taken.update(clockwise(me, peer.id) for peer in self.liveness.asked_leaves())
        ahead, behind = gap(taken, size)
        for peer in sorted(peers, key=lambda peer: distance(me, peer.id)):
            offset = clockwise(me, peer.id)
            if ahead < offset < behind:
                continue
            self.liveness.probe(peer, leaf=True)
            taken.add(offset)
            ahead, behind = gap(taken, size)

    def _meet(self, sender: Peer, leaves: tuple[Peer, ...], failed: tuple[Peer, ...]) -> None:
        self.liveness.leaf_answered(sender.id)
        self.leaves.add(sender)
        if sender.id in self._returned:
            self._returned.discard(sender.id)
            if self.neighbours.includes(sender):
                self._tell_leaves()
        self._confirm(sender, failed)
        self._compare(sender, leaves)
        self.learn(leaves)

    def _confirm(self, teller: Peer, failed: tuple[Peer, ...]) -> None:
        """Others declared these dead: check for ourselves, but not for long. If it is about us, object."""
        for peer in failed:
            if peer == self._context.me:
                self._context.send(teller, Ping(self._context.me, self._context.now))
                continue
            known = self.liveness.live.get(peer.id)
            if known != peer or self.liveness.silence(peer) < self._context.config.probe_ms:
                continue
            self._told_dead.add(peer.id)
            self.liveness.probe(peer, evidence=Evidence.TOLD)

    def _compare(self, sender: Peer, leaves: tuple[Peer, ...]) -> None:
        """A leaf of ours that should be one of the sender's too, but is not, may have left silently."""
        quiet_ms = self._context.config.suspect_ms
        quiet = [peer for peer in self.leaves if self.liveness.silence(peer) >= quiet_ms]
        shown = {peer.id: peer.incarnation for peer in leaves} if quiet else {}
        missing = [peer for peer in quiet if shown.get(peer.id) != peer.incarnation]
        if not missing or 2 * len(leaves) <= len(self.leaves):
            return  # the sender is new and knows few nodes yet
        ahead, behind = reach(sender.id, leaves)
        for peer in missing:
            if not ahead < clockwise(sender.id, peer.id) < behind:
                self.suspect(peer)

    def _failed(self) -> tuple[Peer, ...]:
        return self.liveness.recent_dead(self._context.config.dead_retry_ms)

    def _ask_leaves(self, peer: Peer) -> None:
        context = self._context
        context.send(peer, LeafProbe(context.me, tuple(self.leaves), self._failed(), context.now))

    def _ask_row(self, peer: Peer) -> None:
        context, row = self._context, self.table.row_of(peer.id)
        context.send(peer, RowRequest(context.me, row, self.table.row(row), context.now, context.place))

    def _died(self, peer: Peer) -> None:
        """We found a peer dead. A node that was not told by others tells them; ring neighbours always do."""
        if not self.liveness.bury(peer, "crashed"):
            return
        must_tell = peer in self.leaves.neighbours() or (
            peer.id in self.leaves and peer.id not in self._told_dead
        )
        self._detach(peer)
        self._refill(peer.id)
        if must_tell:
            self._tell_leaves()
        self._sweep()

    def _sweep(self) -> None:
        """Check the whole table, entry by entry; under steady deaths only once in ``_SWEEP_REST_MS``."""
        since, now = self._sweep_since, self._context.now
        self._sweep_again = since is not None and now < since + _SWEEP_REST_MS
        if not self._sweep_again:
            self._sweep_since = now
            self._context.timers.set(("row", 0), now + self._context.config.sweep_ms)

    def _tell_leaves(self) -> None:
        """A ring neighbour died or has returned: show all leaves, which then check for themselves. When
        halves of a ring meet again, the news runs round it in this way."""
        self._context.timers.set(("news", 0), self._context.now + _NEWS_DELAY_MS)

    def _detach(self, peer: Peer) -> None:
        self._told_dead.discard(peer.id)
        self._returned.discard(peer.id)
        self.leaves.remove(peer.id)
        self.table.remove(peer.id)
        self._gone.append(peer)

    def _refill(self, node: int) -> None:
        """A peer is gone: look for its successors in the leaf set and in its cell.

        If it was only going to be a leaf, others may have been passed over for it, though the set is full.
        """
        if self.leaves.wants(node):
            for peer in self.leaves.farthest() or tuple(self.table):
                self.liveness.probe(peer, leaf=True)
        if self.table.rival(node) is None:
            row = [peer for peer in self.table.row(self.table.row_of(node)) if peer.id in self.liveness.live]
            near = self.proximity.nearest(row, 1) or tuple(row[:1])
            for peer in near:
                self._ask_row(peer)

    def _sweeping(self, oldest: Peer) -> bool:
        since = self._sweep_since
        return since is not None and self._context.now - self.liveness.silence(oldest) < since
