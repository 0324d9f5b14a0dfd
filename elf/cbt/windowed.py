"""A group-by that forgets by time: the groups of the last panes, each pane by itself.

    rows ─▶ pane 41 (sealed) │ pane 42 (sealed) │ pane 43 (a buffer tree)      flush: merged groups of all
             └ forgotten when pane 41 + ``panes`` comes

The panes that rows come for are buffer trees, a few at most. All others are *sealed*: one table of groups,
merged unless they are few, compressed, in the bytes that a checkpoint has of it. So what the newest rows
change is written anew and nothing else, and a pane that leaves takes its groups along: no aggregate has to be
inverted, and maxima age as sums do. ``partials`` merges the panes and keeps them, in O(rows held).

Pane ``p`` is event time ``[p * pane_us, (p + 1) * pane_us)``. The newest pane that rows came for is the last
of the window, so what is held is bounded by the window and not by whoever reads. Rows of panes that are
forgotten are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from elf.aggregates import State, merge_tables
from elf.batch import decode, encode
from elf.cbt.tree import BufferTree

OPEN_MAX: Final = 4
"""Panes that are buffer trees at once: those that rows came for last."""
FEW_ROWS: Final = 1 << 10
"""A pane of no more is kept as its rows came: whoever merges the panes merges them, too."""
SMALL_BYTES: Final = 1 << 16
"""A sealed pane of no more is kept as it is read, too: reading it takes longer than merging it."""


class WindowedTree:
    """Merged partial aggregates of the last ``panes`` panes of ``pane_us``. Not safe to share among threads.
    What merges may raise ``SumOverflow``, as of ``BufferTree``."""

    def __init__(self, keys: Sequence[str], states: Sequence[State], pane_us: int, panes: int) -> None:
        if pane_us < 1 or panes < 1:
            raise ValueError("a window has at least one pane, and a pane at least 1 µs")
        self._keys = tuple(keys)
        self._states = tuple(states)
        self.pane_us = pane_us
        self.panes = panes
        self._open: dict[int, BufferTree] = {}
        """The one that rows came for last is last."""
        self._images: dict[int, bytes] = {}
        """Of sealed panes, and of open ones as long as they stay as they are."""
        self._tables: dict[int, pa.Table] = {}
        """The groups of small ones of these."""
        self._newest: int | None = None
        self._none = self._tree().partials()

    def _tree(self) -> BufferTree:
        return BufferTree.of_partials(self._keys, self._states)

    def held(self) -> list[int]:
        """The panes that have groups, in order."""
        return sorted({*self._open, *self._images})

    # -- inserting -------------------------------------------------------------------------------------------

    def insert_at(self, groups: pa.Table, at_us: int) -> None:
        """Add partial aggregates to the pane of an event time."""
        self._insert(groups, at_us // self.pane_us)

    def insert_panes(self, groups: pa.Table, panes: pa.ChunkedArray) -> None:
        """Add partial aggregates, and the pane of each row."""
        numbers = panes.to_numpy()
        if not len(numbers):
            return
        last = int(numbers.max())
        newest = last if self._newest is None else max(last, self._newest)
        for pane in np.unique(
            numbers[numbers > newest - self.panes]
        ).tolist():  # others are forgotten at once
            self._insert(groups.filter(pa.array(numbers == pane)), pane)

    def _insert(self, groups: pa.Table, pane: int) -> None:
        newest = pane if self._newest is None else max(pane, self._newest)
        if newest != self._newest:
            self._newest = newest
            for gone in [one for one in self.held() if one <= newest - self.panes]:
                self._open.pop(gone, None)
                self._changed(gone)
        if pane <= newest - self.panes or not groups.num_rows:
            return
        tree = self._opened(pane)
        self._changed(pane)
        tree.insert_partials(groups)

    def _changed(self, pane: int) -> None:
        self._images.pop(pane, None)
        self._tables.pop(pane, None)

    def _opened(self, pane: int) -> BufferTree:
        tree = self._open.pop(pane, None)
        if tree is None:
            tree = self._tree()
            if pane in self._images:
                tree.insert_partials(self._groups(pane))
        self._open[pane] = tree
        if len(self._open) > OPEN_MAX:
            oldest = next(iter(self._open))
            self._image(oldest)
            del self._open[oldest]
        return tree

    def empty(self) -> None:
        """Forget everything but the types of the columns."""
        self._none = self.partials().slice(0, 0)
        self._open.clear()
        self._images.clear()
        self._tables.clear()
        self._newest = None

    # -- reading out -----------------------------------------------------------------------------------------

    def partials(self, since_us: int | None = None) -> pa.Table:
        """The groups of all panes that end after ``since_us`` (all, if None), merged: a row for each key, in
        no fixed order. The panes stay."""
        found = self._since(since_us)
        return merge_tables(found, self._keys, self._states) if found else self._none

    def pieces(self, since_us: int | None = None) -> pa.Table:
        """The same as it is held: a key may have several rows."""
        return pa.concat_tables([self._none, *self._since(since_us)], promote_options="permissive")

    def _since(self, since_us: int | None) -> list[pa.Table]:
        first = None if since_us is None else since_us // self.pane_us
        return [self._groups(pane) for pane in self.held() if first is None or pane >= first]

    def _groups(self, pane: int) -> pa.Table:
        """The groups of a pane; of a pane of few rows a key may have several."""
        if (found := self._tables.get(pane)) is not None:
            return found
        tree = self._open.get(pane)
        found = decode(self._images[pane]) if tree is None else tree.partials(few_rows=FEW_ROWS)
        if found.nbytes <= SMALL_BYTES:
            self._tables[pane] = found
        return found

    # -- durability ------------------------------------------------------------------------------------------

    def images(self) -> dict[int, bytes]:
        """The groups of each pane as bytes, for ``load``; made anew only for panes that have changed."""
        return {pane: self._image(pane) for pane in self.held()}

    def _image(self, pane: int) -> bytes:
        if pane not in self._images:
            self._images[pane] = encode(self._groups(pane))
        return self._images[pane]

    def load(self, images: Mapping[int, bytes]) -> None:
        """Become the tree whose ``images`` these are. Raises ``PeerError`` for other bytes."""
        for image in images.values():
            decode(image)
        self._open.clear()
        self._tables.clear()
        self._images = dict(images)
        self._newest = max(images, default=None)
