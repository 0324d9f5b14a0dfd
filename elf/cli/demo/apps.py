"""``elf demo --app``: the paper's applications (``elf.examples``), each on a small fleet on this machine,
and its live results checked against the logs (``batch``).

Everything goes through the client, as a person would do it: ``submit`` sends the file, ``query`` asks the
master.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from rich.console import Console

import elf.examples
from elf.cli.demo import batch
from elf.cli.demo import fleet as layout
from elf.cli.demo.batch import Result, Row
from elf.cli.demo.fleet import CLICKS, POLL_SECS, POSTS, Fleet, gathered, reached, told, workplace
from elf.cli.demo.play import DemoOptions
from elf.cli.printing import console, use_utf8
from elf.cli.processes import ended
from elf.client import Client
from elf.client.values import for_terminal
from elf.errors import ElfError, UserError

RESULT_WAIT_SECS: Final = 30.0
"""How long a result may be overdue before the demo gives up."""

PROMOTION: Final = "micro_promotion"
BUNDLING: Final = "product_bundling"
PREDICTION: Final = "sale_prediction"
SPAM: Final = "spam_campaign"
STORE: Final = "video_games"
PRODUCT: Final = "Angry Birds Season"
FEW_FOLLOWERS: Final = 100

Settings = Mapping[str, object]


@dataclass
class Stage:
    """What an application's story is told with."""

    client: Client
    fleet: Fleet
    out: Console
    epochs: int
    seconds: float

    def say(self, text: str = "") -> None:
        """A line."""
        self.out.print(for_terminal(text), soft_wrap=True)

    async def submit(self, job: str, settings: Settings, *, replace: bool = False) -> None:
        """Send an example, and say the command that would."""
        path = Path(elf.examples.__file__).with_name(f"{job}.py")
        shown = [
            f'--set {name}="{value}"' if isinstance(value, str) else f"--set {name}={value}"
            for name, value in settings.items()
        ]
        self.say(" ".join([f"elf submit elf/examples/{job}.py", *(["--replace"] if replace else []), *shown]))
        text = path.read_text(encoding="utf-8")
        await self.client.submit(text, path.name, job, replace=replace, settings=settings)

    async def results(
        self, job: str, key: str, show: Callable[[Result], str | None], *, only: Settings | None = None
    ) -> list[Result]:
        """Results of a job as they come, until so many were worth showing; all of them are returned.
        ``only``: those with these values (an earlier generation's are no more).
        """
        found: list[Result] = []
        shown = since = 0
        heard, error = time.monotonic(), ""
        while True:
            try:
                answer = cast(list[Result], await self.client.query(job, {"since": since}))
            except UserError as refused:  # it is not running yet
                answer, error = [], f": {refused}"
            for one in answer:
                if all(one[name] == value for name, value in (only or {}).items()):
                    since, heard = _number(one, key), time.monotonic()
                    found.append(one)
                    line = show(one)
                    if line is not None:
                        self.say(f"  {line}")
                        shown += 1
                    if shown == self.epochs:
                        return found
            if time.monotonic() - heard > RESULT_WAIT_SECS + self.seconds:
                raise ElfError(f"no result of {job} came within {RESULT_WAIT_SECS + self.seconds:g} s{error}")
            await asyncio.sleep(POLL_SECS)

    async def all(self, job: str) -> list[Result]:
        """All results of a job."""
        return cast(list[Result], await self.client.query(job))


def _number(result: Result, key: str) -> int:
    """A result's number; a prediction has that of its last batch."""
    number = result[key]
    return int(number[-1] if isinstance(number, list) else number)


Checks = Callable[[batch.Logs], list[bool]]


@dataclass(frozen=True)
class App:
    """An application: what it is about, the stream it reads, and its story, which ends with a way to check
    it."""

    about: str
    stream: str
    story: Callable[[Stage], Any]


def run_app(name: str, options: DemoOptions) -> int:
    """Play an application; 0 when live and batch agree. Raises ``ElfError`` when something does not come
    about."""
    use_utf8()
    app = APPS[name]
    out = console(sys.stdout)
    with workplace(options.keep) as folder, ended() as processes:
        places = layout.places(folder, (app.stream,) * options.agents)
        fleet = layout.start(processes, places, options.rate)
        checks = asyncio.run(told(processes, fleet, _play(app, fleet, options, out)))
        processes.stop(fleet.generators)
        logs = batch.read({place.address: place.log for place in places})
    found = checks(logs)
    out.print(verdict(found, sum(map(len, logs.values()))), highlight=False)
    return 0 if found and all(found) else 1


def verdict(found: Sequence[bool], lines: int) -> str:
    """What the check came to, in a line."""
    differ = ", ".join(str(number) for number, good in enumerate(found, 1) if not good)
    return f"live = batch in {sum(found)} of {len(found)} epochs" + (
        f"; these differ: {differ}" if differ else f" ({lines:,} lines counted again)"
    )


async def _play(app: App, fleet: Fleet, options: DemoOptions, out: Console) -> Checks:
    """The story; nobody looks at the fleet after it."""
    began = time.monotonic()
    async with await reached(fleet.places[1], began) as client:
        stage = Stage(client, fleet, out, options.windows, options.window_seconds)
        stage.say(app.about)
        await gathered(client, fleet, began)
        stage.say(f"{len(fleet.places)} agents, {options.rate:g} lines a second each\n")
        return cast(Checks, await app.story(stage))


# -- the four ------------------------------------------------------------------------------------------------


async def micro_promotion(stage: Stage) -> Checks:
    await stage.submit(PROMOTION, {"every": stage.seconds})

    def show(one: Result) -> str | None:
        if not one["clicks"]:
            return None
        clicks = [(product, one["clicks"][product]) for product in one["top"]]
        gave = " ".join(str(count) for _, count in sorted(one["gave"].items())) or "–"
        return f"{one['batch']:5}  {one['agents']:6}  {_list(clicks):68}  {gave}"

    stage.say(f"\n  batch  agents  {'clicks':68}  agents with the last discounts")
    batches = await stage.results(PROMOTION, "batch", show)
    return lambda logs: batch.promotions(batches, logs, STORE, 3)


async def product_bundling(stage: Stage) -> Checks:
    window = 4 * stage.seconds
    await stage.submit(BUNDLING, {"every": stage.seconds, "window": window})

    def show(one: Result) -> str | None:
        bundles = one["bundles"]
        if not bundles:
            return None
        products = sum(map(len, bundles))
        return (
            f"{one['look']:5}  {one['agents']:6}  {products:8}  {len(bundles):7}  {one['epochs']:6}  "
            f"{one['ms'] / one['epochs']:12.0f}"
        )

    stage.say("\n  epoch  agents  products  bundles  epochs  ms an epoch")
    looks = await stage.results(BUNDLING, "look", show)
    stage.say()
    for bundle in looks[-1]["bundles"][:4]:
        stage.say(f"  bought together: {_some(bundle)}")
    stage.say()
    return lambda logs: batch.bundlings(looks, logs, STORE)


async def sale_prediction(stage: Stage) -> Checks:
    await stage.submit(PROMOTION, {"every": stage.seconds})
    await stage.submit(BUNDLING, {"every": stage.seconds, "window": 4 * stage.seconds})
    await stage.submit(PREDICTION, {"every": stage.seconds / 2, "product": PRODUCT})

    def show(one: Result) -> str | None:
        history = " ".join(f"{clicks:5}" for clicks in one["history"])
        popular = f"popular: {', '.join(one['popular'])}" if one["popular"] else "not popular"
        return f"{one['batches'][-1]:5}  {history:36}{one['forecast']:8.0f}  {popular}"

    stage.say("\n  batch  clicks on its bundle, batch by batch   forecast")
    made = await stage.results(PREDICTION, "batches", show)
    stage.say(f"\n  its bundle at last: {_some(made[-1]['bundle'])}\n")
    batches, looks = await stage.all(PROMOTION), await stage.all(BUNDLING)
    return lambda logs: batch.predictions(made, batches, looks, logs, STORE, PRODUCT)


async def spam_campaign(stage: Stage) -> Checks:
    """Three functions, one after the other: by user, by location, and who is it there that nobody follows."""
    sales = "text LIKE '%sales%'"

    def show(one: Result) -> str | None:
        return f"{one['batch']:5}  {one['agents']:6}  {_list(one['top'])}" if one["top"] else None

    async def phase(by: str, where: str, *, replace: bool = True) -> list[Result]:
        began = time.monotonic()
        await stage.submit(SPAM, {"every": stage.seconds, "by": by, "where": where}, replace=replace)
        if replace:
            stage.say(f"  accepted after {time.monotonic() - began:.2f} s; the next generation begins")
        stage.say("  batch  agents  posts about sales")
        return await stage.results(SPAM, "batch", show, only={"by": by, "where": where})

    stage.epochs = max(1, stage.epochs // 2)
    users = await phase("user.name", sales, replace=False)
    places = await phase("user.location", sales)
    place = places[-1]["top"][0][0]
    where = f"{sales} AND user.location = '{place}' AND user.followers_count < {FEW_FOLLOWERS}"
    few = await phase("user.name", where)
    stage.say()

    def about_sales(row: Row) -> bool:
        return "sales" in row["text"]

    def suspicious(row: Row) -> bool:
        user = row["user"]
        return about_sales(row) and user["location"] == place and user["followers_count"] < FEW_FOLLOWERS

    def checks(logs: batch.Logs) -> list[bool]:
        return [
            *batch.campaigns(users, logs, about_sales, _name, 5),
            *batch.campaigns(places, logs, about_sales, _location, 5),
            *batch.campaigns(few, logs, suspicious, _name, 5),
        ]

    return checks


def _name(row: Row) -> str:
    return str(row["user"]["name"])


def _location(row: Row) -> str:
    return str(row["user"]["location"])


def _some(products: Sequence[str]) -> str:
    return ", ".join(products[:4]) + (f" and {len(products) - 4} more" if len(products) > 4 else "")


def _list(pairs: Sequence[Sequence[Any]]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in pairs)


APPS: Final = {
    "micro-promotion": App(
        "The video games that were clicked most, batch by batch; their agents give a discount on them.",
        CLICKS,
        micro_promotion,
    ),
    "product-bundling": App(
        "Video games that the same users like and buy: components of a graph, over a sliding window.",
        CLICKS,
        product_bundling,
    ),
    "sale-prediction": App(
        "How Angry Birds will do: a master that asks the masters of the other two jobs, and draws a line.",
        CLICKS,
        sale_prediction,
    ),
    "spam": App(
        "Who posts about sales most, then two closer looks: the job's function is changed while it runs.",
        POSTS,
        spam_campaign,
    ),
}
