"""The compressed buffer tree (paper, section 2.2)."""

from elf.cbt.spill import SpillError, SpillStore
from elf.cbt.tree import BufferTree

__all__ = ["BufferTree", "SpillError", "SpillStore"]
