"""The page in a real browser (Debian's Chromium, headless): what people see, what they may, and that a log
line stays text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from lab.chaos.engine import united
from lab.chromium import CHROMIUM, SOON, Browser, Tab, tab
from overlay.regions import region_of
from tests.page.conftest import BAD, Pages
from tests.support.histories import asked, begun
from tests.support.regions import REGIONS, one_head_each, world_of

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (apt install chromium)")
BUTTONS = "[...document.querySelectorAll('.title button')]"
WRONG = "SELECT produkt FROM clicks GROUP BY produkt WINDOWING 1 SECONDS"
COUNT = "SELECT COUNT(*) AS n FROM clicks WINDOWING 1 SECONDS"
NAV = "document.querySelectorAll('nav a').length"
BADGE = "document.querySelector('section .badge')?.textContent"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("chromium"))
    yield made
    made.close()


def go(page: Tab, at: str) -> None:
    page.evaluate(f"location.hash = {at!r}")


def test_who_has_the_link_sees_the_fleet_and_changes_jobs(pages: Pages, browser: Browser) -> None:
    with tab(browser) as page:
        page.open(pages.link(pages.own))
        page.until("document.querySelector('tbody tr td')?.textContent === 'web-0'")
        assert page.evaluate("location.hash") == "#/fleet"
        assert pages.own.token not in page.evaluate("location.href + document.cookie")
        go(page, "#/jobs")
        page.until("[...document.querySelectorAll('h2 a')].some((one) => one.textContent === 'most')")
        go(page, "#/job/most")
        page.until(f"{BADGE} === '1 of 1 agent'")
        page.until("document.querySelector('.chart canvas')")
        page.until("document.querySelector('.flow svg circle.root')")
        page.until("document.querySelectorAll('.strip button').length > 2")
        page.press("ArrowLeft")
        page.until("document.querySelector('.strip [aria-pressed=true]').nextSibling")
        for label, state in (("Pause", "paused"), ("Resume", "active")):
            page.evaluate(f"{BUTTONS}.find((one) => one.textContent === {label!r}).click()")
            page.until(f"document.querySelector('.title .badge').textContent === {state!r}")
        go(page, "#/query")
        page.until("document.querySelector('textarea')")
        page.evaluate(f"document.querySelector('textarea').value = {WRONG!r}")
        page.evaluate("document.querySelector('button.main').click()")
        page.until("document.querySelector('.error').textContent.includes('did you mean')")
        assert page.evaluate("getSelection().toString()") == "produkt"
        page.evaluate(f"document.querySelector('textarea').value = {COUNT!r}")
        page.press("Enter", text="\r", control=True)
        page.until(f"{BADGE} === '1 of 1 agent'")
        assert page.problems() == []


GROUPED: tuple[tuple[str, list[str]], ...] = (
    ("SELECT sc_status, COUNT(*) AS n FROM a GROUP BY sc_status WINDOWING 5 SECONDS", ["sc_status"]),
    (
        "SELECT sc_status / 100 AS class, a.c_ip, ROUND(x, 2) AS r FROM a\nGROUP  BY sc_status / 100, "
        "a.c_ip, ROUND(x, 2) HAVING COUNT(*) > 1 LIMIT 3 WINDOWING 5 SECONDS",
        ["class", "c_ip", "r"],
    ),
    (
        "SELECT k, MAX(n) AS m FROM (SELECT k, u, COUNT(*) AS n FROM a GROUP BY k, u) GROUP BY k "
        "WINDOWING 5 SECONDS",
        ["k"],
    ),
    (
        "SELECT priority AS p, k, COUNT(*) AS n FROM a GROUP BY priority, k PRIORITY research "
        "WINDOWING 5 SECONDS",
        ["p", "k"],
    ),
    (
        "SELECT trees, sample AS s, COUNT(*) AS n FROM a GROUP BY trees, sample TREES 16 SAMPLE BY k 5 % "
        "WINDOWING 5 SECONDS",
        ["trees", "s"],
    ),
    ("SELECT COUNT(*) AS n FROM a WINDOWING 5 SECONDS", []),
)


def test_numbers_by_which_a_job_groups_name_lines_and_are_no_bars(pages: Pages, browser: Browser) -> None:
    asked = "SELECT clicks_count AS many, COUNT(*) AS n FROM clicks GROUP BY clicks_count WINDOWING 1 SECONDS"
    pages.own.sql(f"CREATE JOB by_number AS {asked}")
    (agent,) = pages.fleet.fleet.agents
    with tab(browser) as page:
        page.open(pages.link(pages.own))
        page.until(NAV)
        for sql, keys in GROUPED:
            called = f"import('/page/windows.js').then((one) => one.groupsOf({json.dumps(sql)}))"
            assert page.evaluate(called) == keys
        go(page, "#/job/by_number")
        legend = "document.querySelector('.legend span')?.textContent"
        for _ in range(20):
            agent.append([(now_us(), "a", 7), (now_us(), "b", 9)])
            time.sleep(0.5)
            if page.evaluate(f"Boolean({legend})"):
                break
        assert page.evaluate(legend).isdigit(), "a number, not a row"
        assert page.evaluate(
            "[...document.querySelectorAll('.controls option')].map((one) => one.value)"
        ) == ["n"]
    pages.own.sql("DROP JOB by_number")


def test_a_link_brings_a_name_and_no_statement(pages: Pages, browser: Browser) -> None:
    with tab(browser) as page:
        page.open(pages.link(pages.own))
        page.until(NAV)
        go(page, "#/job/most; PAUSE JOB most")
        page.until("document.body.textContent.includes('there is no job most; PAUSE JOB most')")
        go(page, "#/job/most")
        page.until("document.querySelector('.title .badge')?.textContent === 'active'")


def test_a_link_does_not_replace_a_token_unasked(pages: Pages, browser: Browser) -> None:
    with tab(browser) as page:
        page.open(pages.link(pages.own))
        page.until(NAV)
        no = "window.confirm = (text) => { window.asked = text; return false; }"
        page.call("Page.addScriptToEvaluateOnNewDocument", source=no)
        page.open(f"http://127.0.0.1:{pages.own.port}/?again#key=elf_nothing")
        page.until(NAV)
        assert "token" in page.evaluate("window.asked")
        assert page.evaluate("localStorage.getItem('elf token')") == pages.own.token


def test_a_reader_at_an_agent_reads_on_a_phone_and_what_is_logged_stays_text(
    pages: Pages, browser: Browser
) -> None:
    with tab(browser, width=390, height=844, dark=True) as page:
        page.open(pages.link(pages.agent).partition("#")[0])
        page.until("document.activeElement?.id === 'token'")
        page.type("elf_nothing")
        page.press("Enter", text="\r")
        page.until("document.querySelector('.bad')?.textContent.includes('this is no token')")
        page.type(pages.agent.token)
        page.press("Enter", text="\r")
        page.until(NAV)
        go(page, "#/job/most")
        page.until(f"{BADGE} === '1 of 1 agent'")
        (agent,) = pages.fleet.fleet.agents
        cell = f"[...document.querySelectorAll('td')].some((one) => one.textContent === {BAD!r})"
        windows = "document.querySelectorAll('.strip button').length"
        seen = page.evaluate(windows)
        while not page.evaluate(cell):
            agent.append([(now_us(), BAD, 9)])
            page.until(f"{windows} > {seen} || {cell}")
            seen = page.evaluate(windows)
        assert page.evaluate("document.title") != "owned"
        assert page.evaluate("document.querySelectorAll('td script, td img').length") == 0
        assert page.evaluate(f"{BUTTONS}.length") == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
        assert [one for one in page.problems() if "401" not in one] == []


def now_us() -> int:
    return time.time_ns() // 1000


def test_an_alter_is_tried_beside_the_job_before_it_is_sent(pages: Pages, browser: Browser) -> None:
    asked = "SELECT product, SUM(clicks_count) AS clicks FROM clicks GROUP BY product WINDOWING 1 SECONDS"
    pages.own.sql(f"CREATE JOB tried AS {asked}")
    dialog = "document.querySelector('dialog')"
    new = "SELECT product, COUNT(*) AS clicks FROM clicks GROUP BY product WINDOWING 1 SECONDS -- all"
    with tab(browser) as page:
        page.open(pages.link(pages.own))
        page.until(NAV)
        go(page, "#/job/tried")
        page.until(f"{BADGE} === '1 of 1 agent'")
        page.evaluate(f"{BUTTONS}.find((one) => one.textContent === 'Alter …').click()")
        page.evaluate(f"{dialog}.querySelector('textarea').value = {new!r}")
        button = f"[...{dialog}.querySelectorAll('button')].find((one) => one.textContent === {{!r}}).click()"
        page.evaluate(button.format("Try it on 3 windows"))
        page.until(f"{dialog}.textContent.includes('Nothing is changed yet.')")
        assert page.evaluate(f"{dialog}.querySelectorAll('details').length") == 3
        assert page.evaluate(f"[...{dialog}.querySelectorAll('th')].some((one) => one.textContent === 'new')")
        assert pages.own.sql("DESCRIBE tried")["table"]["rows"][0] == ["state", "active"]
        assert "version 2" not in str(pages.own.sql("DESCRIBE tried"))
        page.evaluate(button.format("Alter"))
        page.until(f"!{dialog}")
        page.until("document.querySelector('[role=status].good').textContent.includes('is version 2 now')")
        assert page.problems() == []
    pages.own.sql("DROP JOB tried")


def seen_while(pages: Pages, page: Tab, expression: str, *paths: str) -> None:
    """Lines of the access log come, of now and with these paths, until an expression is true."""
    (agent,) = pages.fleet.fleet.agents
    known = {"sc_bytes": 10, "cs_referer": None, "cs_user_agent": "curl/8.11.0"}
    deadline = time.monotonic() + SOON
    while not page.evaluate(f"Boolean({expression})"):
        assert time.monotonic() < deadline, page.text()
        now = datetime.now(UTC).isoformat()
        with (agent.folder / "access.log").open("a") as log:
            for place, path in enumerate(paths):
                line = {
                    "ts": now,
                    "c_ip": f"10.0.0.{place % 3}",
                    "cs_uri_stem": path,
                    "sc_status": 200,
                    **known,
                }
                log.write(json.dumps(line) + "\n")
        time.sleep(1)


def test_panels_show_the_fleets_requests_and_what_is_clicked_becomes_a_filter(
    pages: Pages, browser: Browser
) -> None:
    card = "[...document.querySelectorAll('details.card')].find((one) => one.textContent.startsWith({!r}))"
    rows = "[...{}.querySelectorAll('tbody tr')].map((row) => row.cells[0].textContent)"
    files, hosts = (rows.format(card.format(title)) for title in ("Requested files", "Hosts"))
    with tab(browser) as page:
        page.open(pages.link(pages.own))
        page.until(NAV)
        go(page, "#/panels")
        page.until(card.format("Requested files"))
        assert page.evaluate("document.querySelector('select').value") == "access"
        assert page.evaluate("document.querySelectorAll('details.card[open]').length") == 6
        all_there = f"{files}.includes('/a') && {files}.includes({BAD!r}) && {hosts}.length === 3"
        seen_while(pages, page, all_there, "/a", "/b", BAD)
        assert page.evaluate("document.title") == "Panels – elf"
        assert page.evaluate("document.querySelectorAll('td script, td img').length") == 0

        host = "[...{}.querySelectorAll('button.cell')].find((one) => one.textContent === '10.0.0.1')"
        page.evaluate(f"{host.format(card.format('Hosts'))}.click()")
        page.until("document.querySelector('.chip')?.textContent.startsWith('host = 10.0.0.1')")
        only = f"{files}.join() === '/b' && {hosts}.join() === '10.0.0.1'"
        seen_while(pages, page, only, "/a", "/b", BAD)
        page.evaluate("document.querySelector('.chip button').click()")
        page.until("!document.querySelector('.chip')")
        page.evaluate("document.querySelectorAll('select')[1].value = 60")
        page.evaluate("document.querySelectorAll('select')[1].dispatchEvent(new Event('change'))")
        seen_while(pages, page, f"{files}.includes('/c')", "/c", "/c", "/c")
        assert page.problems() == []


EQUAL: dict[str, object] = {
    "outcome": "equal",
    "window_start": None,
    "compared": True,
    "reasons": [],
    "differences": [],
}
LATE = {
    "outcome": "explained",
    "window_start": "2026-01-01T00:00:00Z",
    "window_end": "2026-01-01T00:01:00Z",
    "compared": True,
    "reasons": [{"reason": "late", "text": BAD}],
    "differences": [{"kind": "missing", "live": None, "offline": {"product": BAD, "n": 1}}],
}
COMPARED = {"outcome": "explained", "counts": {"equal": 1, "explained": 1}, "windows": [EQUAL, LATE]}
"""What ``elf compare --json`` says."""


def test_the_compare_page_shows_why_windows_differ(pages: Pages, browser: Browser) -> None:
    with tab(browser) as page:
        page.open(pages.link(pages.own))
        page.until(NAV)
        # Spark takes half a minute; what it says is told in its place.
        page.evaluate(
            f"const asked = fetch, said = {json.dumps(json.dumps(COMPARED))};"
            "window.fetch = (at, options) => String(at).includes('/compare') && options?.method === 'POST'"
            " ? Promise.resolve(new Response(said)) : asked(at, options)"
        )
        go(page, "#/compare")
        page.until("document.querySelector('section[data-job=most] button')")
        page.evaluate("document.querySelector('.title button.main').click()")
        page.until(
            "document.querySelector('section[data-job=most] .badge.warn')?.textContent === 'explained'"
        )
        assert page.evaluate("document.querySelector('section[data-job=most]').textContent").count(BAD) == 2
        assert page.evaluate("document.querySelectorAll('main script, main img').length") == 0
        assert page.problems() == []
    with tab(browser) as page:
        page.open(pages.link(pages.agent))
        page.until(NAV)
        go(page, "#/compare")
        page.until("document.querySelector('main').textContent.includes('There is no Spark here')")


def told_of_three_regions() -> tuple[dict[str, Any], str, str, str]:
    """What EXPLAIN ROUTES tells in a simulated fleet where one region's way to the root is slow; that region,
    the third one and that of the root."""
    world = world_of(5, 9)
    spec, _ = begun(world, 60_000, query=united(6, 6), rate_ms=800)
    world.run_until(lambda: one_head_each(world, spec), 20_000)
    world.run(30_000)
    (job,) = world.agents[0].node.log.jobs()
    root = region_of(world.by_address[job.leader].place)
    slow, other = (region for region in REGIONS if region != root)
    stated = {(slow, root): (1.0, 0.2), (slow, other): (1e5, 0.01), (other, root): (1e5, 0.01)}
    world.agents[2].node.clients.statements._routes._stated = stated
    _, told = asked(world, 2, "EXPLAIN ROUTES")
    return told, slow, other, root


def test_regions_are_a_map_and_tables_of_what_explain_routes_tells(pages: Pages, browser: Browser) -> None:
    told, slow, other, root = told_of_three_regions()
    decided = {"columns": [], "rows": [], "more": 0}
    answers = {
        "EXPLAIN ROUTES": {"text": "", "table": None, "data": told},
        "SHOW DECISIONS": {"text": "", "table": decided, "data": None},
    }
    rows = "[...document.querySelectorAll('#{} tbody tr')].map((row) => row.innerText.split('\\t'))"
    drawn = "document.querySelector(`[data-link='{} → {}'] .{}`) !== null"
    with tab(browser, width=390, height=844, dark=True) as page:
        page.open(pages.link(pages.own))
        page.until(NAV)
        page.evaluate(
            f"const asked = fetch, answers = {json.dumps(answers)};"
            "window.fetch = (at, options) => {"
            "  const said = String(at).endsWith('/sql') && answers[JSON.parse(options.body).sql];"
            "  return said ? Promise.resolve(Response.json(said)) : asked(at, options); }"
        )
        go(page, "#/regions")
        page.until("document.querySelectorAll('svg.map circle').length === 3")
        for origin, target, kind, there in (
            (slow, root, "today", True),
            (slow, root, "planned", False),
            (slow, other, "planned", True),
            (slow, other, "today", False),
            (other, root, "today", True),
            (other, root, "planned", False),
            (root, other, "today", False),
        ):
            assert page.evaluate(drawn.format(origin, target, kind)) is there, (origin, target, kind)
        label = f"document.querySelector(`[data-link='{slow} → {root}'] title`).textContent"
        assert page.evaluate(label).startswith(f"{slow} → {root}: 1 B/s stated, delay 200 ms, round trip ")
        assert "full today" in page.evaluate(label)
        links = {row[0]: row for row in page.evaluate(rows.format("links"))}
        assert len(links) == 6
        assert links[f"{slow} → {root}"][1:3] == ["1 B/s", "stated"]
        (ways,) = page.evaluate(rows.format("ways"))
        assert ways[:2] == ["job", root]
        head, via = told["jobs"][0]["heads"][slow][0], told["jobs"][0]["heads"][other][0]
        assert {*ways[3].split("\n")} == {f"{slow} → {root}, by {head}", f"{other} → {root}, by {via}"}
        assert {*ways[5].split("\n")} == {f"{slow} → {other} → {root}", f"{other} → {root}"}
        said = page.text()
        for line in (told["acts"], *told["differs"], *told["plan"]["today"], *told["missing"]):
            assert line in said
        assert "Decided" not in said
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.problems() == []


def test_without_regions_the_page_says_so_in_a_line(pages: Pages, browser: Browser) -> None:
    with tab(browser) as page:
        page.open(pages.link(pages.agent))
        page.until(NAV)
        go(page, "#/regions")
        line = "Nothing crosses a border: no agent says where it stands (agent.place and cluster.regions)."
        page.until(f"document.querySelector('main p')?.innerText === {line!r}")
        assert page.evaluate("document.querySelector('main').children.length") == 2
        assert page.evaluate("document.querySelectorAll('main section, main svg').length") == 0
        assert page.problems() == []
