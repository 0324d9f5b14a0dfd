"""``elf bench campaign``: who sells most, a closer look, the same windows by Spark; all as it was written."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from elf.client import Window
from lab.bench.campaign import TOP, Block, Campaign, Seen


def test_a_small_one(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Campaign(agents=3, hosts=1, rate=20, window=1, windows=2)
    assert bench.perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (said["judged"], said["wrong"], said["posts_per_s"]) == (4, 0, 60)
    assert said["compared"]["equal"] >= 4
    assert said["compared"]["unexplained"] == 0
    assert min(said["zoom_ms"], said["create_ms"], said["lag_ms"]["p50"], said["spark_s"], said["cores"]) > 0


def test_a_batch_counts_its_own_posts() -> None:
    block = Block.of(3, 200)
    posts = [json.loads(line) for line in block.at(1_767_225_600_123_000).splitlines()]
    assert {post["created_at"] for post in posts} == {"2026-01-01T00:00:00.123Z"}
    sales = [post["user"] for post in posts if "sales" in post["text"]]
    assert block.counts[0] == Counter(user["name"] for user in sales)
    assert block.counts[1] == Counter(user["location"] for user in sales if user["followers_count"] < 100)
    assert 0 < block.counts[1].total() < block.counts[0].total() < 200


def test_a_window_is_right_when_it_has_the_first_of_what_was_written() -> None:
    seen, block = Seen(1_000_000), Block.of(5, 200)
    seen.wrote(1_500_000, block)
    best = sorted(block.counts[0].items(), key=lambda pair: (-pair[1], pair[0]))[:TOP]

    def hear(version: int, posts: list[int]) -> bool:
        start, end = (datetime.fromtimestamp(second, UTC) for second in (1, 2))
        table = pa.table({"who": [who for who, _ in best], "posts": posts})
        seen.hear(
            Window(
                job="a.1", name="suspects", version=version, master="m", start=start, end=end, revision=0,
                status={}, table=table,
            )
        )  # fmt: skip
        return seen.right((version, 1_000_000))

    assert hear(1, [count for _, count in best])
    assert not hear(1, [count + 1 for _, count in best])
    assert not hear(2, [count for _, count in best]), "the closer look counts places"
    assert seen.of(1, 1_000_000) == [(1, 1_000_000)]
    assert seen.of(1, 1_000_001) == []
