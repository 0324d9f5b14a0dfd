"""The page about a comparison: all of it is there, and nothing of a log does anything in a browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from elf.errors import UserError
from spark_backend.compare import Comparison, Difference, Reason, Verdict
from spark_backend.page import ROWS_MAX, page, write

EVIL = '/x"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\x1b[31m'
COLUMNS = ("page", "n")


class Read(HTMLParser):
    """What a browser would find."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def window(at: int, *differences: Difference, reason: str = "", **status: object) -> Verdict:
    reasons = (Reason(reason, f"because of {EVIL}", 1),) if reason else ()
    whole = {"expected": 4, "reported": 3, "missing": [EVIL], **status}
    return Verdict(at * 10**6, (at + 1) * 10**6, 0, whole, 4, 4, differences, COLUMNS, reasons)


def read(*windows: Verdict, job: str = "busy", query: str = "SELECT 1") -> Read:
    return Read("".join(page(Comparison(COLUMNS, windows), job, query)))


def test_what_was_logged_is_text_wherever_it_stands() -> None:
    columns = (EVIL, "n")
    verdict = Verdict(0, 10**6, 0, {"missing": [EVIL], "expected": 2, "reported": 1}, 1, 1,
                      (Difference((EVIL, 1), (EVIL, 2)), Difference(None, (EVIL, 2))), columns,
                      (Reason("late", EVIL, 1),))  # fmt: skip
    found = Read("".join(page(Comparison(columns, (verdict,)), EVIL, f"SELECT {EVIL}\nFROM x")))
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "img", "iframe", "link", "object", "base"}
    assert all(not name.startswith("on") for _, attributes in found.tags for name in attributes)
    text = "".join(found.text)
    shown = EVIL.replace("\x1b", "\\x1b")
    assert text.count(shown) >= 7
    assert "\x1b" not in text
    policies = [a["content"] for tag, a in found.tags if tag == "meta" and "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert found.open == []


def test_it_needs_no_network() -> None:
    text = "".join(page(Comparison(COLUMNS, (window(0, missing=[]),)), "busy", "SELECT 1"))
    assert not re.search(r"https?:|url\(|@import|src=|href=\"[^#]", text)


def test_each_window_is_a_point_of_each_chart_and_leads_to_its_rows() -> None:
    off = Difference(("/", 90), ("/", 100))
    found = read(window(0), window(1, off, reason="late"), window(2, off, reason="unexplained"))
    circles = [attributes["class"] for tag, attributes in found.tags if tag == "circle"]
    assert circles == ["equal", "explained", "unexplained"] * 3
    targets = {attributes.get("id") for tag, attributes in found.tags if tag == "div"}
    assert {a["href"] for tag, a in found.tags if tag == "a"} == {f"#{one}" for one in targets if one}
    text = "".join(found.text)
    assert "live = offline in 1 of 3 windows" in text
    assert "n 10 (10.0%)" in text
    assert [a["value"] for tag, a in found.tags if tag == "input" and "checked" in a] == ["unexplained"]


def test_many_rows_and_infinite_errors_are_bounded() -> None:
    many = [Difference((f"/{n}", 1), (f"/{n}", 0)) for n in range(ROWS_MAX + 7)]
    text = "".join(read(window(0, *many, reason="late"), window(1)).text)
    assert "… and 7 more rows." in text
    assert "∞" in text
    assert len(text) < 100_000
    assert "No window was compared." in "".join(read().text)
    skipped = Verdict(0, 10**6, 0, {}, 0, 0, (), COLUMNS, (Reason("skipped", "cut off"),), compared=False)
    assert "not compared" in "".join(read(skipped).text)


def test_it_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write(Comparison(COLUMNS, (window(0),)), "busy", "SELECT 1", tmp_path / "x.html")
    assert "busy" in (tmp_path / "x.html").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["x.html"]
    with pytest.raises(UserError, match=r"cannot write .*: no such file"):
        write(Comparison(COLUMNS), "busy", "SELECT 1", tmp_path / "no" / "x.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*: is a directory"):
        write(Comparison(COLUMNS), "busy", "SELECT 1", tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "x.html"]
