"""The page in a real browser (Debian's Chromium, headless): what people see, what they may, and that a log
line stays text."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.page.conftest import BAD, Pages
from tests.support.chromium import CHROMIUM, Browser, Tab, tab

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
