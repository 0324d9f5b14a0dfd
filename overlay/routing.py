"""The prefix routing table: for each digit of our id, a node that differs from us first there (Pastry section
2.1).

Row r, column c holds a node that shares r digits with us and has c as the next one. Entries may be hearsay: a
dead one costs a hop's timeout, never a wrong delivery.
"""

from __future__ import annotations

from collections.abc import Iterator

from overlay.errors import OverlayBug
from overlay.ids import ID_BITS, Peer, digit, shared_digits


class RoutingTable:
    """Cells by (row, column), only the filled ones stored: about 16 log16 N of them."""

    def __init__(self, me: int, bits: int) -> None:
        self._me = me
        self._bits = bits
        self._mask = (1 << bits) - 1
        self._rows: dict[int, dict[int, Peer]] = {}

    def __len__(self) -> int:
        return sum(len(cells) for cells in self._rows.values())

    def __iter__(self) -> Iterator[Peer]:
        for cells in self._rows.values():
            yield from cells.values()

    def __contains__(self, node: int) -> bool:
        holder = self.rival(node)
        return holder is not None and holder.id == node

    def row_of(self, node: int) -> int:
        """The row where a node belongs: the number of digits that it shares with us."""
        return shared_digits(self._me, node, self._bits)

    def rival(self, node: int) -> Peer | None:
        """The holder of the cell of that node or key (perhaps the node itself). It shares one digit more with
        it than we do."""
        bits = self._bits
        row = (
            ID_BITS - (self._me ^ node).bit_length()
        ) // bits  # row_of and digit inlined: this is called often
        cells = self._rows.get(row)
        return None if cells is None else cells.get(node >> ID_BITS - (row + 1) * bits & self._mask)

    def put(self, peer: Peer) -> None:
        """Put the peer into its cell, in place of any other."""
        row = self.row_of(peer.id)
        if row * self._bits >= ID_BITS:
            raise OverlayBug(f"{peer.address} has our own id")
        self._rows.setdefault(row, {})[digit(peer.id, row, self._bits)] = peer

    def remove(self, node: int) -> bool:
        """Empty the cell if that node holds it; False if it doesn't."""
        if node not in self:
            return False
        row = self.row_of(node)
        del self._rows[row][digit(node, row, self._bits)]
        if not self._rows[row]:
            del self._rows[row]
        return True

    def row(self, row: int) -> tuple[Peer, ...]:
        """The entries of a row, in no meaningful order."""
        return tuple(self._rows.get(row, {}).values())

    def check(self) -> None:
        """Raise OverlayBug unless every entry stands in its cell."""
        for row, cells in self._rows.items():
            if not cells:
                raise OverlayBug(f"row {row} is kept though it is empty")
            for column, peer in cells.items():
                if (self.row_of(peer.id), digit(peer.id, row, self._bits)) != (row, column):
                    raise OverlayBug(f"{peer.address} stands in a wrong cell ({row}, {column})")
