"""What ``elf.planning.stretches`` is compared with, where servers come to a graph computation or leave it
(*Assured cloud computing*, 6.5.2).

- ``matched``: the best matching of servers and equal stretches, in time that grows with the cube of the
  servers; ``appended``: none, those who come stand last.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from elf.errors import UserError
from elf.planning.stretches import Part, Parts, asked, in_common


def matched(before: Parts, come: Sequence[str] = (), leave: Collection[str] = ()) -> dict[str, Part]:
    """Equal stretches so that as few vertices move as can be. Raises ``UserError`` without scipy."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise UserError("the best matching needs scipy: install elf-stream[graphs]") from None
    stay, stretches = asked(before, come, leave)
    servers = [*stay, *come]
    kept = [[in_common(before.get(one, (0, 0)), stretch) for stretch in stretches] for one in servers]
    _, places = linear_sum_assignment(np.array(kept), maximize=True)
    return {server: stretches[place] for server, place in zip(servers, places.tolist(), strict=True)}


def appended(before: Parts, come: Sequence[str] = (), leave: Collection[str] = ()) -> dict[str, Part]:
    """Equal stretches in the order of the servers, those who come last: what the two others are compared
    with."""
    stay, stretches = asked(before, come, leave)
    return dict(zip((*stay, *come), stretches, strict=True))
