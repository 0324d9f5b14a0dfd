"""Generated logs: the same from the same seed, and what they say they are."""

from __future__ import annotations

import io
import json
import re
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from elf.cli.demo.batch import bundles_of
from lab.cli.generate import GenerateOptions, write
from lab.generator import Access, Clicks, Posts, Source, write_finite
from lab.generator.catalogue import PRODUCTS, STORES
from lab.generator.posts import CAMPAIGN, CAMPAIGN_FOLLOWERS_MAX, CAMPAIGN_LOCATION

START_US = 1_767_225_600_000_000
COMBINED = re.compile(
    r'(?P<ip>\S+) (?P<ident>\S+) (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" '
    r'(?P<status>\d{3}) (?P<bytes>\d+|-) "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"'
)


def finite(source: Source, rows: int, disorder_us: int = 0, seed: int = 3) -> bytes:
    out = io.BytesIO()
    write_finite(
        source, out, rows=rows, start_us=START_US, per_second=1000, disorder_us=disorder_us, seed=seed
    )
    return out.getvalue()


def test_clicks_are_the_documents_of_figure_4() -> None:
    documents = [json.loads(line) for line in finite(Clicks(3), 20_000).splitlines()]
    assert len(documents) == 20_000
    assert len({d["id"] for d in documents}) == 20_000
    known = set(PRODUCTS)
    for document in documents:
        assert " ".join(document) == "created_at id product store clicks_count likes buys_count user"
        assert (document["store"], document["product"]) in known
        assert document["clicks_count"] >= 1
        assert set(document["user"]) == {"id", "name", "location"}
    times = [datetime.fromisoformat(d["created_at"]) for d in documents]
    assert times == sorted(times)
    assert (times[-1] - times[0]).total_seconds() == pytest.approx(20, abs=0.01)
    top, _ = Counter(d["product"] for d in documents).most_common(1)[0]
    assert top == "Angry Birds Season"
    assert {d["store"] for d in documents} == set(STORES)


def test_likes_and_buys_are_edges_with_bundles_in_them() -> None:
    documents = [json.loads(line) for line in finite(Clicks(3), 20_000).splitlines()]
    games = [d for d in documents if d["store"] == "video_games"]
    fond = [d for d in games if d["likes"] or d["buys_count"]]
    assert 0.2 < len(fond) / len(games) < 0.4
    bundles = bundles_of((d["user"]["id"], d["product"]) for d in fond[:1_000])
    assert len(bundles) >= 7
    assert max(map(len, bundles)) <= 12
    clicked = bundles_of((d["user"]["id"], d["product"]) for d in games)
    assert max(map(len, clicked)) == 40  # what is only clicked on has none


def test_posts_have_a_campaign_in_them() -> None:
    documents = [json.loads(line) for line in finite(Posts(3), 20_000).splitlines()]
    assert set(documents[0]) == {"created_at", "id", "text", "user"}
    assert set(documents[0]["user"]) == {"id", "name", "location", "followers_count"}
    sales = [d for d in documents if "sales" in d["text"]]
    assert len(sales) / len(documents) == pytest.approx(0.13, abs=0.02)
    often = {name for name, count in Counter(d["user"]["name"] for d in sales).items() if count > 50}
    bots = {
        d["user"]["name"]
        for d in sales
        if d["user"]["name"] in often
        and d["user"]["location"] == CAMPAIGN_LOCATION
        and d["user"]["followers_count"] < CAMPAIGN_FOLLOWERS_MAX
    }
    assert len(bots) == CAMPAIGN
    assert often - bots == {"@BigStore", "@MegaMart", "@OutletCity"}
    people = {d["user"]["name"]: json.dumps(d["user"]) for d in documents}
    other = [json.loads(line)["user"] for line in finite(Posts(4), 2_000).splitlines()]
    assert all(people.get(user["name"], json.dumps(user)) == json.dumps(user) for user in other)


def test_access_lines_are_combined_format() -> None:
    lines = finite(Access(3), 20_000).decode().splitlines()
    rows = [COMBINED.fullmatch(line) for line in lines]
    assert all(rows)
    found = [row.groupdict() for row in rows if row]
    requests = Counter(row["request"] for row in found)
    assert requests["-"] > 0
    assert any(request.startswith(r"\x16\x03") for request in requests)
    assert any(":" in row["ip"] for row in found)
    assert any('\\"' in row["agent"] for row in found)
    assert all(row["bytes"] == "-" for row in found if row["status"] == "304")
    assert {"200", "304", "404", "500"} <= {row["status"] for row in found}
    assert found[0]["time"] == "01/Jan/2026:00:00:00 +0000"
    assert found[-1]["time"] == "01/Jan/2026:00:00:19 +0000"


@pytest.mark.parametrize("make", [Clicks, Access, Posts])
def test_the_same_seed_gives_the_same_bytes(make: type[Clicks] | type[Access] | type[Posts]) -> None:
    one = finite(make(5, 0.01), 9_000, disorder_us=500_000)
    assert one == finite(make(5, 0.01), 9_000, disorder_us=500_000)
    assert one != finite(make(6, 0.01), 9_000, disorder_us=500_000)
    assert one.count(b"\n") == 9_000


def test_disorder_is_bounded() -> None:
    documents = [json.loads(line) for line in finite(Clicks(3), 5_000, disorder_us=500_000).splitlines()]
    times = [datetime.fromisoformat(d["created_at"]).timestamp() for d in documents]
    behind = [START_US / 1e6 + n / 1000 - moment for n, moment in enumerate(times)]
    assert times != sorted(times)
    assert min(behind) >= -0.002
    assert 0.4 < max(behind) <= 0.502


@pytest.mark.parametrize("make", [Clicks, Access])
def test_bad_lines_are_bad_and_as_many_as_asked(make: type[Clicks] | type[Access]) -> None:
    bad = 0
    for line in finite(make(3, 0.1), 10_000).splitlines():
        try:
            text = line.decode()
            good = isinstance(json.loads(text), dict) if make is Clicks else bool(COMBINED.fullmatch(text))
            # This one has the shape of the format, but a time that is none.
            good = good and "[yesterday]" not in text
        except ValueError:
            good = False
        bad += not good
    assert 850 < bad < 1_150


def options(out: str, **changes: object) -> GenerateOptions:
    given: dict[str, Any] = {
        "kind": "clicks",
        "out": out,
        "rows": None,
        "seed": 1,
        "rate": None,
        "seconds": None,
        "per_second": 1000.0,
        "start": "2026-01-01T00:00:00Z",
        "disorder": 0.5,
        "bad": 0.0,
    }
    return GenerateOptions(**{**given, **changes})


def test_a_live_log_is_appended_to_at_its_rate_with_the_time_of_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "clicks.jsonl"
    path.write_text("before\n")
    before = time.time()
    write(options(str(path), rate=2_000.0, seconds=0.4))
    after = time.time()
    first, *lines = path.read_text().splitlines()
    assert first == "before"
    assert len(lines) == 800
    times = [datetime.fromisoformat(json.loads(line)["created_at"]).timestamp() for line in lines]
    assert before - 0.6 < min(times)
    assert max(times) <= after
