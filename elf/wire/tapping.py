"""What a client that taps a stream (``elf tap``) and the agent that it asks say to each other: the argument
and the answer of the call ``tap``, both JSON; the rows are the reply's table."""

from __future__ import annotations

from typing import Final

import msgspec

ROWS_MAX: Final = 1_000
"""Rows that an agent shows a second."""
LINES_MAX: Final = 10_000
"""Lines a second that an agent looks at, to find those that a condition is true for."""

RETRY_MS_MIN: Final = 300
"""Between an answer and the next request: what is shorter looks no quicker."""


class TapOptions(msgspec.Struct, frozen=True):
    """Rows of ``stream`` for which ``where`` is true (ELF-QL; empty: all), since the last request of this
    ``tap``, a name that the client has made up; the first one begins it. ``columns``: which of them, beside
    time and agent; none: all."""

    tap: str
    stream: str
    where: str = ""
    columns: tuple[str, ...] = ()


class TapReply(msgspec.Struct, frozen=True):
    """What is told beside the rows of a tap.

    Attributes:
        hidden (int): rows that are not among those shown, since an agent shows ``rows_max`` a second.
        unseen (int): lines at which nobody looked, since an agent looks at ``lines_max`` a second.
        rows_max (int): rows a second.
        lines_max (int): lines a second.
        silent (dict[str, str]): agents of which nothing came, and why.
        waiting (str): why there cannot be any rows yet; empty where there can.
        retry_ms (int): milliseconds until the next question, so that those to many agents are not too many.

    Example:
        >>> TapReply(hidden=3).retry_ms
        300
    """

    hidden: int = 0
    unseen: int = 0
    rows_max: int = ROWS_MAX
    lines_max: int = ROWS_MAX
    silent: dict[str, str] = {}
    waiting: str = ""
    retry_ms: int = RETRY_MS_MIN
