"""``elf bench page``: all readers have their windows, and what they take is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest

from elf.errors import ElfError
from lab.bench import idle, page


def test_readers_are_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "SETTLE_SECS", 0.1)
    assert page.Page(4, subscribers=3, browser=False).perform(as_json=True) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert min(said[name]["windows_least"] for name in ("clients", "events")) >= 1
    assert {one["what"] for one in said["figures"]} == {
        "3 subscribers of one job",
        "3 readers of its events over HTTP",
    }


def test_a_page_without_a_browser_is_said() -> None:
    run = {"cpu_percent": 2.0}
    report = page.Page(1, subscribers=2).report({"alone": [run], "clients": [run], "events": [run]})
    assert report.notes == ["there is no Chromium here: the page was not looked at"]
    assert [figure.elf for figure in report.figures] == [0.0, 0.0]
    painted = {"paint_secs": 0.3, "rows_secs": 0.6}
    report = page.Page(1).report({"alone": [run], "page": [{"cpu_percent": 2.5}], "paint": [painted]})
    assert [(figure.elf, figure.unit) for figure in report.figures] == [
        (0.5, "% of a core"),
        (0.3, "s"),
        (0.6, "s"),
    ]


async def test_readers_without_windows_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "SOON_SECS", 0.3)

    async def nobody() -> AsyncGenerator[None]:
        await asyncio.sleep(0)
        if page.SOON_SECS < 0:
            yield

    with pytest.raises(ElfError, match="2 of 2 readers have no window"):
        await page._read(nobody, 2, dict, 1)
