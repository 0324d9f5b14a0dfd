"""Where an agent is in its files, for those who may run its work again (``elf.job.again``): what a worker
knows of its sources, with how each file can be found and told from others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from agents.inputs import Position
from elf.job.again import Mark, Reading, SourceAt, Where


def found_at(where: Sequence[Where], positions: Iterable[Position], reading: Reading) -> tuple[Where, ...]:
    """The same, with places. A mark from before a file was renamed has it where it is now; one with a file
    that is not open any more is none, and one without a file that has spoken since. Files without a row yet
    are asleep."""
    open_now = {position.source: position for position in positions if not position.finished}
    return tuple(_found(one, open_now, reading) for one in where)


def _found(one: Where, open_now: Mapping[str, Position], reading: Reading) -> Where:
    spoken = {source.id for source in one.now.sources} if one.now is not None else set(open_now)
    marks = tuple((pane, _placed(mark, open_now, spoken)) for pane, mark in one.panes)
    return Where(one.flow, one.sealed, marks, _placed(one.now, open_now, spoken), reading)


def _placed(mark: Mark | None, open_now: Mapping[str, Position], spoken: set[str]) -> Mark | None:
    known = set() if mark is None else {source.id for source in mark.sources}
    new = [SourceAt(name, at.offset, 0, True) for name, at in open_now.items() if name not in known]
    if mark is None or any(one.id in spoken for one in new) or not known <= open_now.keys():
        return None
    sources = (_source(one, open_now[one.id]) for one in (*mark.sources, *new))
    return msgspec.structs.replace(mark, sources=tuple(sources))


def _source(source: SourceAt, at: Position) -> SourceAt:
    return msgspec.structs.replace(
        source, path=at.path, inode=at.inode, head_bytes=at.head_bytes, head_crc=at.head_crc
    )
