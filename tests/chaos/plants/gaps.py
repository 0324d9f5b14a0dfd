"""Planted bugs of section 11 of the protocol: gaps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from agents.inputs.copies import Ended
from agents.inputs.files import Files
from agents.inputs.follower import Follower
from agents.inputs.rotated import FileId, Rotated
from agents.inputs.tail import Tail
from agents.inputs.values import Chunk, Position


def forgets_gaps_on_the_way(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.2: what a pane lacks gets lost when counters are merged."""
    patch.setattr("agents.committing.panetables.gaps_of", lambda tables: {})


def keeps_gaps_from_windows(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.2: a window does not say what its panes lack."""
    patch.setattr("agents.committing.status._within", lambda gaps, first, last: set())


def passes_over_what_is_packed(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: what rotation has compressed is not looked for."""
    beside = Rotated._beside

    def plain(
        rotated: Rotated, logs: Mapping[str, bool], now_ms: int
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        return (found for found in beside(rotated, logs, now_ms) if not found[0].endswith(".gz"))

    patch.setattr(Rotated, "_beside", plain)


def reads_replicas_again(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: a copy of what was read is read from its beginning."""

    def anew(copy: Follower, ended: Ended) -> int:
        return 0

    patch.setattr("agents.inputs.tail.goes_on_at", anew)


def knows_files_by_inode(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: a file with the inode of another is that one, whatever it holds."""

    def resume(follower: Follower, position: Position) -> bool:
        if not follower.is_file_of(position) or not position.source:
            return follower.is_file_of(position)
        follower.generation, follower._id = position.generation, position.source
        follower._head = 0, 0
        follower.go_on_at(min(position.offset, follower.size))
        return True

    patch.setattr(Follower, "resume", resume)


def names_no_gap(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.3: what is gone is counted, and not told."""
    gaps = Tail.gaps

    def none(tail: Tail) -> tuple[()]:
        gaps(tail)
        return ()

    patch.setattr(Tail, "gaps", none)


def reads_what_is_newest_first(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.4: a log is read at once, and what rotation has made of it a while later."""
    turn, since = Tail._turn, dict[Follower, int]()

    def newest(tail: Tail, key: FileId, follower: Follower, bytes_max: int, now_ms: int) -> Chunk | None:
        rotated = follower.path != follower.log and now_ms - since.setdefault(follower, now_ms) < 5_000
        return None if rotated else turn(tail, key, follower, bytes_max, now_ms)

    patch.setattr(Tail, "_waits", lambda *_: False)
    patch.setattr(Tail, "_turn", newest)


def closes_windows_on_unread_files(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.4: of files that were never read nobody is told that they have lines."""
    patch.setattr(Tail, "has_new_sources", False)


def names_gaps_where_nothing_is_gone(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.5: behind each file that was read to its end something is said to be gone."""
    finish = Tail._finish

    def finished(tail: Tail, key: FileId, follower: Follower, now_ms: int) -> None:
        position = follower.position()
        if position is not None:
            tail._miss(position, None, "who knows")
        finish(tail, key, follower, now_ms)

    patch.setattr(Tail, "_finish", finished)


def knows_the_first_cut_only(patch: pytest.MonkeyPatch) -> None:
    """protocol 11.5: of several copies made while nobody looked only the first says that the log was
    cut."""
    patch.setattr(Files, "_find_copies", lambda files, before: None)
