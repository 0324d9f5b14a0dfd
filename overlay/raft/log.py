"""The log of one group in memory: a snapshot, and the entries behind it without a gap. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from overlay.errors import OverlayBug
from overlay.raft.values import Entry, Membership, Snapshot


class Log:
    """Entries of indices ``base.index + 1`` to ``last_index``. Raft (Ongaro and Ousterhout 2014), section
    5.3."""

    def __init__(self, base: Snapshot, entries: Sequence[Entry] = ()) -> None:
        self.base = base
        self.entries: list[Entry] = []
        self._changes: list[Entry] = []
        self.put(entries)

    @property
    def last_index(self) -> int:
        return self.base.index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.base.term

    @property
    def membership(self) -> Membership:
        """The latest one, committed or not: that is the one in force."""
        return self._changes[-1].membership[0] if self._changes else self.base.membership

    @property
    def membership_index(self) -> int:
        """Where the latest membership stands."""
        return self._changes[-1].index if self._changes else self.base.index

    def membership_at(self, index: int) -> Membership:
        """The one in force after the entry at ``index``, which is not below the snapshot."""
        for entry in reversed(self._changes):
            if entry.index <= index:
                return entry.membership[0]
        return self.base.membership

    def in_slot_since(self, slot: int) -> int:
        """The epoch of the first membership here that has this slot; 0 if none has."""
        known = (self.base.membership, *(entry.membership[0] for entry in self._changes))
        return next((membership.epoch for membership in known if membership.in_slot(slot)), 0)

    def term_at(self, index: int) -> int | None:
        """The term of the entry at ``index``; None where the log has none (any more)."""
        if index == self.base.index:
            return self.base.term
        local = index - self.base.index - 1
        return self.entries[local].term if 0 <= local < len(self.entries) else None

    def entry(self, index: int) -> Entry:
        """The entry at an index that the log has."""
        if not self.base.index < index <= self.last_index:
            raise OverlayBug(f"entry {index} is not in the log {self.base.index + 1}..{self.last_index}")
        return self.entries[index - self.base.index - 1]

    def batch(self, first: int, count_max: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from ``first`` on within the bounds, but at least one if there is one."""
        start = first - self.base.index - 1
        size = 0
        chosen: list[Entry] = []
        for entry in self.entries[start : start + count_max]:
            size += len(entry.payload)
            if chosen and size > bytes_max:
                break
            chosen.append(entry)
        return tuple(chosen)

    def below(self, index: int) -> int:
        """The highest index before the run of entries of one term that ``index`` belongs to."""
        term = self.term_at(index)
        while index > self.base.index and self.term_at(index) == term:
            index -= 1
        return index

    def put(self, entries: Sequence[Entry]) -> None:
        """These entries from the first one's index on, instead of whatever was there."""
        if not entries:
            return
        first = entries[0].index
        if not self.base.index < first <= self.last_index + 1:
            raise OverlayBug(
                f"a gap: entry {first} put into the log {self.base.index + 1}..{self.last_index}"
            )
        del self.entries[first - self.base.index - 1 :]
        while self._changes and self._changes[-1].index >= first:
            self._changes.pop()
        self.entries.extend(entries)
        self._changes.extend(entry for entry in entries if entry.membership)

    def snap(self, snapshot: Snapshot) -> None:
        """Begin with this snapshot; entries behind it stay only if ours at its index is of its term."""
        kept: list[Entry] = []
        if self.term_at(snapshot.index) == snapshot.term:
            kept = self.entries[snapshot.index - self.base.index :]
        self.base = snapshot
        self.entries = []
        self._changes = []
        self.put(kept)
