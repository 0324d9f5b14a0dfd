"""``elf bench inputs``: what it counts, and what it calls a failure."""

from __future__ import annotations

from collections import Counter

import pytest

from elf.errors import ElfError
from lab.bench.inputs.bench import Came, InputsBench, judged
from lab.bench.rotation.writers import stem
from lab.bench.runner import tell


def test_rows_that_are_missing_or_twice_are_counted() -> None:
    counts = Counter({stem(0): 1, stem(2): 3})
    assert judged(3, counts, 0) == Came(3, lost=1, doubled=2)
    assert judged(3, counts, 5) == Came(3, doubled=2, told=5), "who is late is not lost"


@pytest.mark.parametrize(
    ("side", "came", "fails"),
    [
        ("http killed", Came(9), False),
        ("http killed", Came(9, lost=1), True),
        ("otlp killed", Came(9, doubled=1), True),
        ("syslog alive", Came(9, lost=1), True),
        ("syslog killed", Came(9, lost=1), False),
        ("otlp alive", Came(missing="no SDK"), False),
    ],
)
def test_a_sender_that_repeats_may_lose_nothing(
    side: str, came: Came, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report = InputsBench().report({side: [came]})
    if fails:
        with pytest.raises(ElfError, match=f"{side}: {came.lost} rows lost, {came.doubled} doubled"):
            tell(report, as_json=False)
    else:
        tell(report, as_json=False)
    assert ("no SDK" in capsys.readouterr().out) == bool(came.missing)
