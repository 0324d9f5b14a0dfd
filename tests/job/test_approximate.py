"""APPROXIMATE: the true value of every row is from the stated one to that plus its bound; less is sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from elf.aggregates import State, merge_tables
from elf.cli.main import main
from elf.job.approximate import CUT, CUT_STATE, keep_best
from elf.job.counters import COUNTER_STATES, counters
from elf.ql.plan import CREDIT, Top

STATES = (State("s0", "sum"), State(CREDIT, "sum"))
TOP = Top("s0", True, False, 20)
Draw = Callable[[np.random.Generator, int], np.ndarray]
DRAWS: dict[str, Draw] = {
    "zipf": lambda rng, rows: rng.zipf(1.2, rows) % 2_000,
    "uniform": lambda rng, rows: rng.integers(0, 400, rows),
}
VALUES: dict[str, Draw] = {
    "counts": lambda rng, rows: np.ones(rows, np.int64),
    "doubles": lambda rng, rows: rng.exponential(0.01, rows),
    "huge": lambda rng, rows: rng.integers(0, 1 << 61, rows) // 500,
    "some negative": lambda rng, rows: rng.integers(-3, 9, rows),
}


def merged(parts: list[tuple[pa.Table, pa.Table]]) -> tuple[pa.Table, pa.Table]:
    groups = merge_tables([groups for groups, _ in parts], ("_pane", "k0"), STATES)
    counted = merge_tables([one for _, one in parts], ("_pane",), (*COUNTER_STATES, CUT_STATE))
    return groups, counted


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("keys", DRAWS)
def test_the_bound_holds_through_levels_and_panes(keys: str, values: str) -> None:
    rng = np.random.default_rng(len(keys) * 100 + len(values))
    truth: Counter[int] = Counter()
    inner = []
    for _ in range(3):
        leaves = []
        for _ in range(4):
            drawn, amounts = DRAWS[keys](rng, 3_000), VALUES[values](rng, 3_000)
            panes = rng.integers(0, 3, 3_000)
            for key, amount in zip(drawn.tolist(), amounts.tolist(), strict=True):
                truth[key] += amount
            rows = pa.table({"_pane": panes, "k0": drawn, "s0": amounts})
            groups = merge_tables([rows], ("_pane", "k0"), STATES[:1])
            leaves.append(keep_best(groups, counters(np.arange(3)), TOP))
        groups, counted = keep_best(*merged(leaves), TOP)
        assert max(Counter(groups["_pane"].to_pylist()).values()) <= TOP.rows or "negative" in values
        inner.append((groups, counted))
    groups, counted = merged(inner)
    window = merge_tables([groups], ("k0",), STATES)
    cut = sum(counted[CUT].to_pylist())
    assert cut > 0
    slack = cut * 1e-9
    for row in window.to_pylist():
        lacking = truth[row["k0"]] - row["s0"]
        assert -slack <= lacking <= cut - row[CREDIT] + slack, row
    known = set(window["k0"].to_pylist())
    assert all(value <= cut + slack for key, value in truth.items() if key not in known)


def test_less_is_sent_and_every_row_says_how_wrong_it_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(8)
    keys = rng.integers(0, 4_000, 16_000)
    rows = ({"ts": 1_700_000_000 + n // 200, "k": f"/pages/{k * 7_919:010d}"} for n, k in enumerate(keys))
    lines = [json.dumps(row) for row in rows]
    log = tmp_path / "log.json"
    log.write_text("\n".join(lines) + "\n")
    query = (
        "SELECT k, COUNT(*) AS n FROM log GROUP BY k ORDER BY n DESC LIMIT {} "
        "WINDOWING 40 SECONDS SLIDE 20 SECONDS"
    )
    found, sent = {}, {}
    for limit in ("5 APPROXIMATE", "1000000"):
        summary = tmp_path / "summary.json"
        with pytest.raises(SystemExit) as end:
            main(["run", "-q", query.format(limit), "--input", str(log), "--agents", "4", "--output", "json",
                  "--summary", str(summary)])  # fmt: skip
        assert not end.value.code
        found[limit] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        sent[limit] = json.loads(summary.read_text())["bytes_sent"]
    some, whole = found.values()
    exact = {(row["window_start"], row["k"]): row["n"] for row in whole}
    assert list(some[0]) == ["window_start", "window_end", "k", "n", "error_bound"]
    assert len(some) == 5 * len({row["window_start"] for row in some})
    for row in some:
        assert row["n"] <= exact[row["window_start"], row["k"]] <= row["n"] + row["error_bound"]
    assert any(row["error_bound"] for row in some)
    assert sent["5 APPROXIMATE"] < 0.8 * sent["1000000"], sent
