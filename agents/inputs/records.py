"""Records of several lines: a line that matches ``start`` begins one, and all others go on with the one
before.

A record is handed out as one line with newlines in it. It is whole when the next one begins, or when nothing
has followed it for ``wait_ms``. It has ``max_line_bytes`` at most: a line that would make it longer begins
another, wherever chunks end. What is no line (``Reject``) is of no record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agents.inputs.values import Int64s


@dataclass(frozen=True)
class Records:
    """``start``: a regular expression (RE2) that is found in the first line of each record."""

    start: str
    wait_ms: int

    def firsts(self, lines: pa.StringArray, offsets: Int64s, max_line_bytes: int) -> Int64s:
        """The numbers of the lines that begin a record; the first one does, whatever it is."""
        begins = np.array(
            pc.match_substring_regex(lines, self.start).to_numpy(zero_copy_only=False), np.bool_
        )
        begins[:1] = True
        firsts = np.flatnonzero(begins)
        ends = offsets + np.asarray(pc.binary_length(lines).to_numpy(), np.int64)
        lasts = np.append(firsts[1:], len(begins)) - 1
        for record in np.flatnonzero(ends[lasts] - offsets[firsts] > max_line_bytes):
            begin = offsets[firsts[record]]
            for row in range(int(firsts[record]) + 1, int(lasts[record]) + 1):
                if ends[row] - begin > max_line_bytes:
                    begins[row], begin = True, offsets[row]
        return np.flatnonzero(begins)

    def of(self, lines: list[str]) -> list[str]:
        """The records of some lines, whatever their length."""
        found = pa.array(lines, pa.string())
        if not lines:
            return []
        firsts = self.firsts(found, np.zeros(len(lines), np.int64), 1 << 62)
        records: list[str] = joined(found, firsts).to_pylist()
        return records


def joined(lines: pa.StringArray, firsts: npt.NDArray[np.int64]) -> pa.StringArray:
    """The records that begin at these lines, of which the first is one."""
    edges = pa.array(np.append(firsts, len(lines)), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(edges, lines), "\n")
