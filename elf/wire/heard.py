"""Which results of a job a reader has: it learns from their numbers what got lost on the way to it."""

from __future__ import annotations


class Heard:
    """All up to ``upto``, and some beyond a gap. ``upto`` None: a reader that begins with the next result."""

    def __init__(self, upto: int | None) -> None:
        self.upto = upto
        self._beyond: dict[int, int] = {}

    def take(self, number: int, before: int) -> bool:
        """A result has come, in any order; ``before``: the number of the one before it. Whether it is new."""
        if not number:  # it has none, so it is never sent again
            return True
        if self.upto is None:
            self.upto = before
        new = number > self.upto and number not in self._beyond
        if number > self.upto:  # who asks again may hear that what is between is kept no more
            self._beyond[number] = min(before, self._beyond.get(number, before))
        self._join()
        return new

    def _join(self) -> None:
        """Go on over what follows without a gap."""
        for number, before in sorted(self._beyond.items()):
            if self.upto is None or before > self.upto:
                return
            self.upto = max(self.upto, number)
            del self._beyond[number]

    @property
    def lacks(self) -> bool:
        """Whether something before the last result has not come."""
        return bool(self._beyond)
