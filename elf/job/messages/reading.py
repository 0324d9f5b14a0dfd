"""The root of a flow and the nodes whose jobs read it from there (protocol 7.2)."""

from __future__ import annotations

import msgspec

from elf.job.spec import START_OF_TIME
from elf.ql.plan import Top
from elf.wire.base import Message


class PaneRequest(msgspec.Struct, frozen=True):
    """What a reader has of a flow, durably: commits up to number ``after``, panes below ``end``. It wants the
    later commits of panes from ``start`` on; with None it wants to begin where the flow is now. ``cut``: the
    rows that it needs of each pane."""

    flow: str
    after: int
    start: int | None
    end: int
    cut: Top | None = None


class ReadPanes(Message, frozen=True, kw_only=True):
    """A node whose jobs read flows, to the root of these, every second or in its turn: what it has (which the
    root need not keep for it), and that it is alive."""

    requests: tuple[PaneRequest, ...]


class FlowHead(Message, frozen=True, kw_only=True):
    """Root to a reader that begins: commit ``after`` was the last one; pane ``start`` is the next."""

    flow: str
    after: int
    start: int


class PaneRow(Message, frozen=True, kw_only=True):
    """Root to a reader, at each commit and when asked: commit number ``seq`` of a flow, the next one after
    ``after`` that concerns the reader, if it wants panes from ``wanted`` on. ``more``: there are others to
    ask for. ``cut``: the rows of each pane in it; None: all."""

    flow: str
    after: int
    seq: int
    more: bool = False
    start: int
    end: int
    revision: int
    members: bytes
    roster_version: int
    counters: bytes = b""
    payload: bytes = b""
    cut: Top | None = None
    wanted: int = START_OF_TIME


READING_MESSAGES = (ReadPanes, FlowHead, PaneRow)
