"""What one who asks without a person's eye on each question may take."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from elf.errors import UserError

HOUR_SECS: Final = 3_600.0


@dataclass(frozen=True)
class Limits:
    """``statements`` an hour; ``rows`` of an answer; ``bytes`` of answers an hour."""

    statements: int = 60
    rows: int = 200
    bytes: int = 2 << 20


class Budget:
    """What was taken in the last hour. Times are seconds of any clock that only goes on."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._asked: deque[float] = deque()
        self._told: deque[tuple[float, int]] = deque()

    def ask(self, now: float) -> None:
        """One more statement. Raises ``UserError``."""
        while self._asked and self._asked[0] <= now - HOUR_SECS:
            self._asked.popleft()
        while self._told and self._told[0][0] <= now - HOUR_SECS:
            self._told.popleft()
        if len(self._asked) >= self.limits.statements:
            wait = int(self._asked[0] + HOUR_SECS - now) + 1
            raise UserError(
                f"the budget of {self.limits.statements} statements an hour is used up; in {wait} s there is "
                "one more"
            )
        if self.left <= 0:
            wait = int(self._told[0][0] + HOUR_SECS - now) + 1
            raise UserError(
                f"the budget of {self.limits.bytes:,} bytes of answers an hour is used up; in {wait} s there "
                "are more"
            )
        self._asked.append(now)

    def tell(self, now: float, size: int) -> None:
        """So many bytes were answered."""
        self._told.append((now, size))

    @property
    def left(self) -> int:
        """Bytes."""
        return self.limits.bytes - sum(size for _, size in self._told)

    def statements_left(self) -> int:
        """Of this hour."""
        return self.limits.statements - len(self._asked)
