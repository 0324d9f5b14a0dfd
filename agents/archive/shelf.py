"""One agent's files of one stream: how a file gets there, is replaced, and goes.

All of it on one thread at a time. The order of each change is such that after a crash the same call goes on:

    ship       files durable → their entry → the caller deletes the roll
    replace    ``busy`` → no hold → the new file durable → its entry, which drops the old ones
    let go     an entry drops the files and counts what is gone → (a while) → files deleted → ``deleted``

Rules: the entry of a file comes after the file, and before anything that could make it again is deleted. A
file that is dropped stays for ``grace_ms``, for those who have begun to read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
from msgspec.structs import replace

from agents.archive.contents import unlisted
from agents.archive.manifest import File, Manifest
from agents.archive.partitions import ArchiveError, Target, agent_of, unit_folder


class Shelf:
    """See above. What goes wrong is an ``ArchiveError``, and the call can be made again."""

    def __init__(self, target: Target, stream: str, agent: str) -> None:
        self.target = target
        self.stream = stream
        self.agent = agent
        self._manifest = Manifest(target, stream, agent)

    def ship(
        self,
        files: Mapping[int | None, Sequence[pa.Buffer]],
        *,
        life: str,
        first: int,
        end: int,
    ) -> list[str]:
        """The records ``[first, end)`` of a life, as files by their hours. Shipped again they are what they
        were. Returns the paths of the files."""
        self._adopt()
        state = self._manifest.state
        folder = self.target.stream_folder(self.stream)
        paths, added = [], []
        for hour, parts in files.items():
            path = f"{unit_folder(hour, self.agent)}/{life}-{first:020d}.parquet"
            paths.append(f"{folder}/{path}")
            if path in state.files or path in state.dropped:
                continue
            self.target.place(f"{folder}/{path}", parts)
            about = File(path=path, life=life, first=first, end=end, rows=0, bytes=sum(map(len, parts)))
            added.append(described(about, pa.BufferReader(parts[-1])))  # which has the footer
        if added:
            self._manifest.append(added=added)
        return paths

    def _adopt(self) -> None:
        """What is there already, if this agent has no manifest yet: it has shipped without one."""
        if not self._manifest.is_new:
            return
        folder = self.target.stream_folder(self.stream)
        found = []
        for path, size in self.target.sizes(self.target.everything(self.stream)).items():
            below = path[len(folder) + 1 :]
            if below.count("/") == 3 and agent_of(below) == self.agent:
                try:
                    with self.target.fs.open_input_file(path) as file:
                        found.append(described(unlisted(below, size), file))
                except (OSError, pa.ArrowException) as error:
                    raise ArchiveError(
                        f"{path} is damaged ({error}): put a copy of it back, or take it out of the archive"
                    ) from error
        rows = Counter[tuple[str, int]]()
        for one in found:
            rows[one.life, one.first] += one.rows
        ends = {roll: roll[1] + count for roll, count in rows.items()}
        self._manifest.append(added=[replace(one, end=ends[one.life, one.first]) for one in found])


def described(file: File, footer: object) -> File:
    """With what the footer of a file says: its rows, and their times."""
    import pyarrow.parquet as pq

    read = pq.read_metadata(footer)
    least, greatest = [], []
    at = read.schema.names.index("ts")
    for group in range(read.num_row_groups):
        times = read.row_group(group).column(at).statistics
        if times is not None and times.has_min_max:
            least.append(times.min_raw)
            greatest.append(times.max_raw)
    if file.hour is None or not least:
        return replace(file, rows=read.num_rows)
    return replace(file, rows=read.num_rows, least_us=min(least), greatest_us=max(greatest))
