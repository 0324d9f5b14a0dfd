"""Moments as people say them."""

from __future__ import annotations

import pytest

from elf.ql.moments import moment_us

NOW_US = 1_767_272_400_500_000  # 2026-01-01T13:00:00.5Z
MIDNIGHT_US = 1_767_225_600_000_000
HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("now", NOW_US),
        ("-6 hours", NOW_US - 6 * HOUR_US),
        ("6 Hours ago", NOW_US - 6 * HOUR_US),
        ("90m", NOW_US - HOUR_US * 3 // 2),
        ("-1.5h", NOW_US - HOUR_US * 3 // 2),
        ("-250 ms", NOW_US - 250_000),
        ("2d", NOW_US - 48 * HOUR_US),
        ("1 week", NOW_US - 168 * HOUR_US),
        ("today", MIDNIGHT_US),
        ("Yesterday", MIDNIGHT_US - 24 * HOUR_US),
        ("2026-01-01", MIDNIGHT_US),
        ("2026-01-01 01:00", MIDNIGHT_US + HOUR_US),
        ("2026-01-01T01:00:00+02:00", MIDNIGHT_US - HOUR_US),
        ("1767225600", MIDNIGHT_US),
        ("", None),
        ("soon", None),
        ("-6 parsecs", None),
        ("2026-13-01", None),
        ("hours", None),
    ],
)
def test_a_moment(text: str, us: int | None) -> None:
    assert moment_us(text, NOW_US) == us
