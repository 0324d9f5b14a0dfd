"""Where the lines of a stream go: those that parsed to the archive, the others to the reject file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from agents.formats import Format
from agents.inputs.values import REJECT_KEPT_BYTES, Chunk, Reject
from agents.tasks.archive import Archive
from agents.tasks.rejects import RejectFile
from elf.job.commands import Outcome


class Sinks:
    """Of one stream; either may be missing. All belongs to the stream task, but ``ship``."""

    def __init__(self, archive: Archive | None = None, rejects: RejectFile | None = None) -> None:
        self._archive = archive
        self._rejects = rejects
        self._durable = 0

    def restore(self, archive: int, rejects: int) -> None:
        """Back to the positions in the last checkpoint; what lies beyond is dropped. Comes first."""
        self._durable = archive
        if self._archive is not None:
            self._archive.restore(archive)
        if self._rejects is not None:
            self._rejects.truncate_to(rejects)

    def take(self, chunk: Chunk, outcome: Outcome, fmt: Format) -> None:
        """The lines of a chunk, as the worker has told them apart."""
        accepted, rejected = outcome.accepted, outcome.rejected
        if self._archive is not None and accepted is not None and outcome.ts is not None and len(accepted):
            whole = len(accepted) == len(chunk.lines)
            lines = chunk.lines if whole else chunk.lines.take(pa.array(accepted))
            self._archive.append(lines, outcome.ts, chunk.source.id, chunk.offsets[accepted])
        if self._rejects is None:
            return
        for reject in chunk.rejects:
            self._rejects.add(reject)
        for index in rejected if rejected is not None else np.empty(0, np.int64):
            line = chunk.lines[int(index)].as_py().encode()
            offset = int(chunk.offsets[int(index)])
            kept = line[:REJECT_KEPT_BYTES]
            why = fmt.why_not(kept.decode(errors="replace"))
            reason = f"no {fmt.name} line" + (f": {why}" if why else "")
            self._rejects.add(Reject(chunk.source.id, chunk.source.path, offset, reason, kept, len(line)))

    def sync(self) -> tuple[int, int]:
        """Make all that was taken durable: the positions in archive and rejects that the checkpoint must
        name."""
        archive = self._archive.sync() if self._archive is not None else 0
        return archive, self._rejects.sync() if self._rejects is not None else 0

    def covered(self, archive: int) -> None:
        """A durable checkpoint names this position of the archive: what is below may be shipped."""
        self._durable = archive

    def due(self, now_ms: int) -> bool:
        """Whether the archive's open roll is to be closed."""
        return self._archive is not None and self._archive.due(now_ms)

    def roll(self) -> None:
        """Close it."""
        if self._archive is not None:
            self._archive.roll()

    @property
    def archives(self) -> bool:
        return self._archive is not None

    @property
    def unshipped(self) -> int:
        """Closed rolls that are not in the archive yet."""
        return 0 if self._archive is None else self._archive.unshipped

    def ship(self) -> None:
        """Ship the closed rolls that the last checkpoint covers; on any thread. Raises ``ArchiveError``."""
        if self._archive is not None:
            self._archive.ship(self._durable)

    @property
    def rejects_not_kept(self) -> int:
        """Rejects beyond the quota of the reject file."""
        return 0 if self._rejects is None else self._rejects.not_kept

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
        if self._rejects is not None:
            self._rejects.close()
