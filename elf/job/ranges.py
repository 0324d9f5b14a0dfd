"""Key ranges: the groups of a fragment over several trees (paper, section 2.3; protocol 1.1).

m key ranges are m flows with one map. The range of a group depends on the hash of its keys alone, so it is
the same on every agent, in every pane, and for all rows (``elf.ql.cells``) of the group: the root of a range
has complete sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from elf.aggregates import canonical_key
from elf.keys import hash_keys


def split(groups: pa.Table, keys: Sequence[str], count: int) -> tuple[pa.Table, ...]:
    """The groups in each of ``count`` equal ranges of the 64-bit hash of their keys (``elf.keys``)."""
    hashes = hash_keys([canonical_key(groups[key]) for key in keys])
    places = ((hashes >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)
    return tuple(groups.filter(pa.array(places == np.uint64(place))) for place in range(count))
