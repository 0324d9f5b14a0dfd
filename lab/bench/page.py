"""``elf bench page``: what readers of windows, and a browser with the page, take from the agent that serves
them; and how soon the page is seen.

One real ``elf-agent`` with one job of windows of a second, over lines that come at ``--rate``. First nobody
reads; then ``--subscribers`` read the job, each over a connection of its own: clients (``SUBSCRIBE``), and as
many of its server-sent events over HTTP; then a headless Chromium, where there is one, shows the job. What
each takes is the difference of the agent's CPU time. First paint is what the browser itself says
(first-contentful-paint), in a new profile each time; the first rows are when the table of the fleet is
there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from typer import Option

from elf.cli.processes import ended, environment
from elf.errors import ElfError
from lab import chromium
from lab.bench.idle import Agent, measured, written
from lab.bench.runner import Bench, Figure, Report, Scratch

JOB: Final = "CREATE JOB busy AS SELECT page, COUNT(*) AS n FROM log GROUP BY page WINDOWING 1 SECONDS"
PAINTS: Final = 5
SOON_SECS: Final = 30.0
_NEWEST: Final = (
    "[...document.querySelectorAll('section .dim')].map((one) => one.textContent)"
    ".find((text) => / to .* UTC/.test(text))"
)
"""The times of the window that the page shows."""
MISSED_MAX: Final = 3
"""Windows of a second that a reader may lack at the ends of a span."""
Found = Mapping[str, float]


@dataclass(frozen=True)
class Page(Bench[str, Found]):
    """An agent that nobody reads, one that many read, and one whose page is open."""

    seconds: Annotated[float, Option("--seconds", min=1, help="How long each time.")] = 20
    subscribers: Annotated[int, Option("--subscribers", min=1, help="That read one job.")] = 200
    rate: Annotated[float, Option("--rate", min=1, help="Lines a second.")] = 20
    browser: Annotated[bool, Option(help="Also a browser, if there is one.")] = True

    def sides(self, scratch: Scratch) -> Mapping[str, Callable[[], Found]]:
        """One agent, for all of them."""
        agent = Agent(scratch.enter_context(ended()), scratch.folder)
        room = 4 * self.subscribers + 64
        agent.start(
            archive=False, http={"page": True, "connections_max": room, "address_connections_max": room}
        )
        agent.give_job(JOB)
        scratch.enter_context(written(scratch.folder / "a.log", self.rate))
        token = _token()

        def alone() -> Found:
            return measured(agent.process, self.seconds)

        def read(readers: Callable[[], AsyncGenerator[None]]) -> Found:
            return asyncio.run(
                _read(readers, self.subscribers, partial(measured, agent.process, self.seconds), self.seconds)
            )

        sides: dict[str, Callable[[], Found]] = {
            "alone": alone,
            "clients": partial(read, partial(_client, agent.address)),
            "events": partial(read, partial(_events, agent.http, token)),
        }
        if self.browser and chromium.CHROMIUM is not None:
            browser = chromium.Browser(scratch.folder / "browser")
            scratch.callback(browser.close)
            link = f"http://{agent.http}/#key={token}"
            sides |= {
                "page": partial(_shown, browser, link, alone),
                "paint": partial(_painted, browser, link),
            }
        return sides

    def report(self, runs: Mapping[str, Sequence[Found]]) -> Report:
        """What each takes more than nobody, and the times of the browser."""
        found = {name: dict(run) for name, (run,) in runs.items()}
        alone = found["alone"]["cpu_percent"]
        what = {"clients": f"{self.subscribers} subscribers of one job", "page": "the page, live at 1 Hz"}
        what["events"] = f"{self.subscribers} readers of its events over HTTP"
        figures = [
            Figure(text, max(found[name]["cpu_percent"] - alone, 0.0), "% of a core", {"nobody": alone})
            for name, text in what.items()
            if name in found
        ]
        if "paint" in found:
            figures.append(Figure("first paint of the page", found["paint"]["paint_secs"], "s"))
            figures.append(Figure("its first rows", found["paint"]["rows_secs"], "s"))
        notes = [] if "paint" in found else ["there is no Chromium here: the page was not looked at"]
        return Report({"seconds": self.seconds, "rate": self.rate, **found}, figures, notes)


def _token() -> str:
    command = [sys.executable, "-P", "-m", "elf.cli.main", "keys", "bearer", "--expires", "1h"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode:
        raise ElfError(f"no token: {done.stderr.strip()}")
    return done.stdout.strip().splitlines()[-1]


async def _read(
    readers: Callable[[], AsyncGenerator[None]], count: int, measure: Callable[[], Found], seconds: float
) -> Found:
    """So many read while it is measured; all of them must have their windows."""
    seen = [0] * count

    async def read(place: int) -> None:
        async with contextlib.aclosing(readers()) as windows:
            async for _ in windows:
                seen[place] += 1

    reading = [asyncio.create_task(read(place)) for place in range(count)]
    try:
        deadline = time.monotonic() + SOON_SECS
        while not all(seen):
            if time.monotonic() > deadline or any(one.done() for one in reading):
                why = next((one.exception() for one in reading if one.done()), None)
                raise ElfError(f"{sum(not one for one in seen)} of {count} readers have no window ({why})")
            await asyncio.sleep(0.1)
        before = list(seen)
        found = dict(await asyncio.to_thread(measure))
        least = min(now - then for now, then in zip(seen, before, strict=True))
        if least < seconds - MISSED_MAX:
            raise ElfError(f"a reader has had {least} windows in {seconds:g} s")
        return {**found, "windows_least": least}
    finally:
        for one in reading:
            one.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


async def _client(address: str) -> AsyncGenerator[None]:
    from elf.client import connect

    async with connect(address) as client, contextlib.aclosing(client.subscribe("busy")) as windows:
        async for _ in windows:
            yield


async def _events(http: str, token: str) -> AsyncGenerator[None]:
    """``/api/v1/jobs/busy/windows``, as a browser reads it."""
    host, _, port = http.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        head = (
            f"GET /api/v1/jobs/busy/windows HTTP/1.1\r\nHost: {http}\r\nAuthorization: Bearer {token}\r\n\r\n"
        )
        writer.write(head.encode())
        await writer.drain()
        said = await reader.readline()
        if b" 200 " not in said:
            raise ElfError(f"no events: {said.decode(errors='replace').strip()}")
        while line := await reader.readline():
            if line.startswith(b"data:"):
                yield
    finally:
        writer.close()


def _shown(browser: chromium.Browser, link: str, measure: Callable[[], Found]) -> Found:
    """While the page of the job is open."""
    with chromium.tab(browser) as page:
        page.open(link)
        page.until("document.querySelector('tbody tr td')")
        page.evaluate("location.hash = '#/job/busy'")
        page.until("document.querySelectorAll('.strip button').length > 2")
        before = page.evaluate(_NEWEST)
        found = dict(measure())
        if problems := page.problems():
            raise ElfError(f"the page complains: {json.dumps(problems)}")
        if page.evaluate(_NEWEST) == before:
            raise ElfError("the page stood still")
        return found


def _painted(browser: chromium.Browser, link: str) -> Found:
    """Medians over new profiles."""
    paints, rows = [], []
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    for _ in range(PAINTS):
        with chromium.tab(browser) as page:
            page.open(link)
            page.until(f"{paint} && document.querySelector('tbody tr td')", every=0.02)
            rows.append(page.evaluate("performance.now()") / 1e3)
            paints.append(page.evaluate(paint) / 1e3)
    return {"paint_secs": round(statistics.median(paints), 3), "rows_secs": round(statistics.median(rows), 3)}
