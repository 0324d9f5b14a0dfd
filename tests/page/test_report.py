"""``elf report``: one file, which asks nobody, and in which what was logged does nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from elf.cli.main import main
from elf.client import Window
from elf.page.report import ROWS_MAX, WINDOWS_MAX, Last, Report, Section, pieces
from lab.chromium import CHROMIUM, Browser, tab
from tests.page.conftest import BAD, Pages
from tests.support.commands import elf
from tests.support.enrolled import until

EVIL = f"{BAD}</script><!-- \u2028 ]]>"
LOG = Path(__file__).parents[2] / "examples" / "access.log"
LINE = '10.0.0.{} - - [01/Jan/2026:12:{:02}:05 +0000] "GET {} HTTP/1.1" 200 7 "-" "{}"\n'
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def elf_report(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["report", *args])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def window(number: int, rows: int = 1) -> Window:
    start = BEGIN + timedelta(minutes=number)
    table = pa.table({"page": [EVIL] * rows, "n": [number] * rows})
    return Window("00.1", "busy", 1, "", start, start + timedelta(minutes=1), 0, {"missing": [EVIL]}, table)


def data_of(text: str) -> dict[str, list[dict[str, object]]]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    told: dict[str, list[dict[str, object]]] = json.loads(found[1])
    return told


def test_all_of_it_is_in_the_file_and_what_runs_is_known_by_its_hash() -> None:
    section = Section(EVIL, EVIL, f"SELECT '{EVIL}'", [window(1)])
    text = "".join(pieces(Report(EVIL, "", {EVIL: EVIL}, [section], {EVIL: EVIL})))
    assert "<img" not in text
    assert text.count("</script>") == 2
    scripts = re.findall(r'<script type="module">(.*?)</script>', text, re.S)
    styles = re.findall(r"<style>(.*?)</style>", text, re.S)
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert [len(scripts), len(styles), len(policy)] == [1, 1, 1]
    for name, of in (("script-src", scripts[0]), ("style-src", styles[0])):
        known = base64.b64encode(hashlib.sha256(of.encode()).digest()).decode()
        assert f"{name} 'sha256-{known}'" in policy[0]
    assert policy[0].startswith("default-src 'none';")
    found = Read(text)
    head = ["html", "head", *4 * ["meta"], "title", "style"]
    assert found.tags == [*head, "body", "main", "noscript", "p", "script", "script"]
    assert not found.attributes & {"src", "href", "style", "onload", "onerror"}
    assert not re.search(r"@import|url\(", styles[0])


class Read(HTMLParser):
    """What a browser would find."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_what_is_too_much_is_told() -> None:
    many = [window(number) for number in reversed(range(WINDOWS_MAX + 5))]
    large = [window(number, ROWS_MAX // 2) for number in range(3)]
    told = data_of(
        "".join(pieces(Report("r", "", {}, [Section("", "", "", some) for some in (many, large)])))
    )
    first, second = told["sections"]
    assert [len(one["windows"]) for one in (first, second)] == [WINDOWS_MAX, 2]  # type: ignore[arg-type]
    assert [first["older"], second["older"]] == [5, 1]


def test_panels_of_a_log_and_what_it_has_no_columns_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    html = tmp_path / "r.html"
    status, out, err = elf_report(capsys, "--html", str(html), "--input", str(LOG))
    assert (status, f"{html}: " in out) == (0, True), err
    assert "12 of 1,500 lines rejected" in err
    told = data_of(html.read_text())
    titles = [one["title"] for one in told["sections"]]
    assert titles[:3] == ["Over time", "Visitors", "Requested files"]
    assert [name for name, _ in told["without"]] == ["Latency", "Virtual hosts"]
    hits = [window["rows"][0][0] for window in told["sections"][0]["windows"]]  # type: ignore[attr-defined]
    assert sum(hits) == 1_488


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "give log files (--input PATH...) or a job (--job JOB), one of them"),
        (("--job", "busy", "--input", "a"), "one of them"),
        (("--job", "busy", "-q", "SELECT 1"), "-q does not go with --job"),
        (("--job", "busy", "--format", "json", "--column", "n=text"), "--format, --column does not go"),
        (("--input", str(LOG), "-q", "SELECT * FROM log LIMIT 3"), "a report has the windows of a SELECT"),
        (("--input", str(LOG), "-q", "SELECT nope, COUNT(*) FROM log GROUP BY nope"), "unknown column"),
        (("--input", "/nowhere.log"), "cannot read /nowhere.log"),
    ],
)
def test_what_cannot_be_reported(
    args: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    html = tmp_path / "r.html"
    status, _, err = elf_report(capsys, "--html", str(html), *args)
    assert status == 1
    assert why in err
    assert not html.exists()


def test_a_log_is_not_replaced_by_its_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LINE.format(1, 1, "/", "-"))
    (tmp_path / "other").symlink_to(log)
    status, _, err = elf_report(capsys, "--html", str(tmp_path / "other"), "--input", str(log))
    assert (status, "it is one of the logs" in err) == (1, True)
    assert log.read_text() == LINE.format(1, 1, "/", "-")


def test_what_is_in_no_result_is_told_as_elf_run_tells_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log, html = tmp_path / "a.log", tmp_path / "a.html"
    log.write_text("".join(LINE.format(1, minute, "/", "x") for minute in (5, 6, 0)))
    late = "SELECT COUNT(*) AS n FROM log WINDOWING 1 MINUTES LATENESS 1 SECONDS"
    status, _, err = elf_report(capsys, "--html", str(html), "--input", str(log), "-q", late)
    assert (status, html.exists()) == (0, True)
    assert "1 of 3 lines are in no window: they came later than LATENESS allows" in err
    html.unlink()
    log.write_text("x\ny\n")
    status, _, err = elf_report(capsys, "--html", str(html), "--input", str(log), "--format", "combined")
    assert (status, html.exists()) == (1, False)
    assert "nothing was read: all 2 lines are rejected" in err


def test_windows_beyond_those_that_are_shown_are_counted_and_forgotten() -> None:
    last, many = Last(), 5 * WINDOWS_MAX
    for number in range(many):
        last.add(window(number))
        last.add(replace(window(number), revision=1))
    last.add(replace(window(0), revision=2))
    assert last.count == many
    assert len(last.windows) == 2 * WINDOWS_MAX
    assert {one.revision for one in last.windows} == {1}
    told = data_of("".join(pieces(Report("", "", {}, [Section("", "", "", last.windows, count=last.count)]))))
    assert told["sections"][0]["older"] == many - WINDOWS_MAX


def test_a_jobs_windows(pages: Pages, tmp_path: Path) -> None:
    html = tmp_path / "most.html"
    args = ("--job", "most", "--connect", pages.fleet.address, "--keys", str(pages.fleet.own))
    until(lambda: elf("report", "--html", str(html), *args).returncode == 0, 60)
    assert "there is no job least" in elf("report", "--html", str(html), *args[:1], "least", *args[2:]).stderr
    (section,) = data_of(html.read_text())["sections"]
    assert section["windows"]
    assert "SUM(clicks_count)" in str(section["sql"])


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (apt install chromium)")
def test_it_reads_in_a_browser_without_a_network(
    browser: Browser, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log, html = tmp_path / "a.log", tmp_path / "r.html"
    bad = BAD.replace('"', "%22")
    lines = [LINE.format(n % 3, n, bad if n % 2 else "/", "curl/8 <b>bold</b>") for n in range(20)]
    log.write_text("".join(lines))
    query = "SELECT cs_request AS asked, COUNT(*) AS n FROM log GROUP BY asked WINDOWING 5 MINUTES"
    assert elf_report(capsys, "--html", str(html), "--input", str(log), "-q", query)[0] == 0
    for width, dark in ((1280, False), (390, True)):
        with tab(browser, width=width, height=800, dark=dark) as page:
            page.call("Network.enable")
            page.call(
                "Network.emulateNetworkConditions",
                offline=True,
                latency=0,
                downloadThroughput=0,
                uploadThroughput=0,
            )
            page.open(f"file://{html}")
            page.until("document.querySelector('.chart canvas')")
            assert page.evaluate("document.querySelectorAll('.strip button').length") == 4
            cell = f"[...document.querySelectorAll('td')].some((one) => one.textContent.includes({bad!r}))"
            assert page.evaluate(cell)
            assert page.evaluate("document.querySelectorAll('td script, td img, td b').length") == 0
            assert page.evaluate("document.title") == f"Report of {log}"
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            page.evaluate("document.querySelector('.strip button').click()")
            page.until("document.querySelector('.strip [aria-pressed=true]').nextSibling")
            assert page.problems() == []
