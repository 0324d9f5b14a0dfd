"""The compressed buffer tree (paper, section 2.2): a group-by that takes rows lazily and compresses its
groups.

    rows ─▶ ``rootbuffer`` (not compressed) ─ full: sorted by key hash, combined ─▶ inner nodes ─▶ leaves
                                                                        flush: merged groups by hash ◀──┘

- ``tree.BufferTree`` is what others use: insert, flush, split off, dump and load.
- ``windowed.WindowedTree`` is one for a window that moves: panes, of which the oldest leave.
- ``node`` moves packed buffers through an (a, b)-tree over the hash; work is bounded for each insert.
- ``run``: what a buffer holds; ``pack``: its bytes; ``combine`` and ``gather``: rows of equal keys, in numpy.
- ``spill``: pieces beyond a memory limit go to a store; ``image``: the whole tree in a checkpoint.
- ``finals``: the tree's own aggregates, without a database.

Nothing here knows streams, jobs or clocks.
"""

from elf.cbt.spill import SpillError, SpillStore
from elf.cbt.tree import BufferTree
from elf.cbt.windowed import FEW_ROWS, WindowedTree

__all__ = ["FEW_ROWS", "BufferTree", "SpillError", "SpillStore", "WindowedTree"]
