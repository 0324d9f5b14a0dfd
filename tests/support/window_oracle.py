"""Windows counted row by row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from elf.windows import Cumulative, Kind, Session, Sliding

Row = tuple[str, int]

Window = tuple[int, int, str]


def oracle(rows: Iterable[Row], kinds: tuple[Kind, ...], to_us: int) -> dict[Window, int]:
    """Rows a window and key, one row after the other, of windows that end by ``to_us``."""
    found: Counter[Window] = Counter()
    for kind in kinds:
        if isinstance(kind, Session):
            return sessions(rows, kind, to_us)
        ends = range(kind.step_us, to_us + 1, kind.step_us)
        if isinstance(kind, Sliding):
            spans = [(a, a + kind.size_us) for a in range(0, to_us - kind.size_us + 1, kind.slide_us)]
        elif isinstance(kind, Cumulative):
            spans = [((end - 1) // kind.size_us * kind.size_us, end) for end in ends]
        else:
            spans = [(0, end) for end in ends if any(end - kind.every_us <= t < end for _, t in rows)]
        for start, end in spans:
            counts = Counter((start, end, key) for key, t in rows if start <= t < end)
            found |= counts
    return dict(found)


def sessions(rows: Iterable[Row], kind: Session, to_us: int) -> dict[Window, int]:
    times: dict[str, list[int]] = defaultdict(list)
    for key, t in sorted(rows):
        times[key].append(t)
    found: dict[Window, int] = {}
    for key, all_times in times.items():
        chains: list[list[int]] = []
        for t in all_times:
            if chains and t - chains[-1][-1] < kind.gap_us:
                chains[-1].append(t)
            else:
                chains.append([t])
        half = kind.max_us // 2
        for chain in chains:
            parts: dict[int, list[int]] = defaultdict(list)
            for t in chain:
                parts[max(t // half + 1, chain[0] // half + 2) * half].append(t)
            for checkpoint, part in parts.items():
                start, end = part[0], min(part[-1] + kind.gap_us, checkpoint)
                assert end - start <= kind.max_us
                if end <= to_us:
                    found[start, end, key] = len(part)
    return found
