"""``elf graph``: edges that ``elf run`` or ``elf sql`` has written as JSON, drawn.

The first two columns that are no bounds of a window are the ends of an edge; of several windows the last one
counts. It draws and computes nothing else: ranks and components are ``WITH GRAPH``'s.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from elf.errors import UserError

VERTICES_MAX: Final = 400
_BOUNDS: Final = ("window_start", "window_end")


def draw(edges: str, plot: Path, title: str) -> int:
    """``edges``: a file, ``-`` for standard input. Raises ``UserError``."""
    from elf.cli.graph_pictures import draw_graph
    from elf.cli.pictures import check_plot

    check_plot(plot)
    try:
        text = sys.stdin.read() if edges == "-" else Path(edges).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {edges}: {error}") from error
    pairs = read_edges(text.splitlines())
    names = sorted({name for pair in pairs for name in pair})
    if len(names) > VERTICES_MAX:
        raise UserError(
            f"a picture holds {VERTICES_MAX} vertices, and these are {len(names):,}: leave some out with "
            "WHERE, HAVING or LIMIT"
        )
    if not names:
        raise UserError("there are no edges to draw")
    draw_graph(names, pairs, title, plot)
    print(f"{len(names)} vertices, {len(pairs)} edges: {plot}")
    return 0


def read_edges(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Of the last window, each once. Raises ``UserError``."""
    found: dict[object, dict[tuple[str, str], None]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            bounds = [row.pop(name, None) for name in _BOUNDS]
            one, other = list(row.values())[:2]
        except (ValueError, AttributeError, TypeError):
            raise UserError(
                f"line {number} is no row of two columns: write edges with elf run … --output json"
            ) from None
        if one is not None and other is not None:
            found.setdefault(str(bounds[1]), {})[str(one), str(other)] = None
    return list(found[max(found, key=str)]) if found else []
