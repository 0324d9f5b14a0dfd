"""Moments that a cron expression says, on the clocks of a time zone. It needs croniter."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter

from elf.errors import UserError

MOMENTS_MAX: Final = 1_000
"""Moments that are told at a time; where so many have passed, more do not matter."""
_HOW: Final = (
    "minute, hour, day of the month, month and day of the week, such as '30 2 * * 1-5', or @hourly, @daily"
)


class Cron:
    """A cron expression.

    Args:
        expression (str): five fields, or ``@daily`` and the like.
        zone (str): such as ``UTC`` or ``Europe/Berlin``.

    Raises:
        UserError: where one of them is none.

    Example:
        >>> Cron("0 3 * * *", "UTC").next_after(0)
        10800000
    """

    def __init__(self, expression: str, zone: str) -> None:
        self._said, self.zone = expression, zone_of(zone)
        fields = expression.split()
        if len(fields) != 5 and not (len(fields) == 1 and expression.startswith("@")):
            raise UserError(f"'{expression}' is no cron expression: {_HOW}")
        try:
            croniter(expression)
        except CroniterError:
            raise UserError(f"'{expression}' is no cron expression: {_HOW}") from None

    def next_after(self, at_ms: int) -> int:
        """The first moment after one, ms since the epoch. Raises ``UserError`` where there is none."""
        try:
            return _ms(self._from(at_ms).get_next(datetime))
        except CroniterError:
            raise UserError(f"'{self._said}' never comes: there is no such day") from None

    def between(self, after_ms: int, until_ms: int) -> list[int]:
        """The moments after one and not after another: of more than ``MOMENTS_MAX`` the last ones."""
        found: list[int] = []
        times = self._from(until_ms + 1)
        try:
            while len(found) < MOMENTS_MAX and (at := _ms(times.get_prev(datetime))) > after_ms:
                found.append(at)
        except CroniterError:
            pass  # there was none before
        return found[::-1]

    def _from(self, at_ms: int) -> croniter:
        return croniter(self._said, datetime.fromtimestamp(at_ms / 1e3, self.zone))


def zone_of(name: str) -> ZoneInfo:
    """A time zone. Raises ``UserError``."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UserError(f"--zone {name}: there is no such time zone, as UTC or Europe/Berlin are") from None


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)
