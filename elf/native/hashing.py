"""Hashes of keys (``elf.keys``), by ``hash.c``."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from elf.errors import ElfBug

UInt64s = npt.NDArray[np.uint64]


def hash_words(library: ctypes.CDLL, words: UInt64s, seed: int) -> UInt64s:
    """Of values of one word or two, (rows, words)."""
    words = np.ascontiguousarray(words)
    hashes = np.empty(len(words), dtype=np.uint64)
    library.elf_hash_words(words.ctypes.data, 8 * words.shape[1], len(words), seed, hashes.ctypes.data)
    return hashes


def hash_texts(
    library: ctypes.CDLL, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], seed: int
) -> UInt64s:
    """Of texts, the first of which begins at the first offset, and the last one ends at the last."""
    rows = len(offsets) - 1
    hashes = np.empty(rows, dtype=np.uint64)
    given = data.ctypes.data, len(data), offsets.ctypes.data, rows
    if library.elf_hash_texts(*given, seed, hashes.ctypes.data) < 0:
        raise ElfBug("the native part was given texts that are unsound")
    return hashes


def hash_mix(library: ctypes.CDLL, hashes: UInt64s, more: UInt64s) -> None:
    """Mixes the hashes of one more column in, in place."""
    library.elf_hash_mix(hashes.ctypes.data, more.ctypes.data, len(hashes))
