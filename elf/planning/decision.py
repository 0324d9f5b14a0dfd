"""What all planners return has: the reasons, in words for people."""

from __future__ import annotations

import msgspec


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision. ``reasons``: one sentence each, in the order in which they were found; never empty, also
    where nothing is to be done."""

    reasons: tuple[str, ...]
