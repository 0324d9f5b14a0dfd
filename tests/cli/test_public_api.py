"""The public API says what it takes, gives and raises, and its examples run."""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from elf.client import Client, connect
from elf.errors import ElfError
from tests.support import two_agents
from tests.support.fleet import Fleet

PUBLIC = {
    "elf.job": "Job JobError QueryFailed Rounds all_lines lines_of",
    "elf.client": "ArchiveStatus Client CompareFacts Result Tapped Window connect split user_name",
    "elf.client.coverage": "coverage is_whole",
    "elf.client.tables": "read_table",
}
"""Modules, and the classes and functions that users import from them; ``docs/api.md`` lists them."""
NAMES = [(module, name) for module, names in PUBLIC.items() for name in names.split()]
OF_A_FLEET = {"ArchiveStatus", "Client", "CompareFacts", "Result", "Tapped", "connect", "user_name"}
BUSY = """CREATE JOB busy AS SELECT product, SUM(clicks_count) AS clicks FROM clicks GROUP BY product
    WINDOWING 1 SECONDS"""


def public(module: str, name: str) -> object:
    return getattr(importlib.import_module(module), name)


# -- what is said --------------------------------------------------------------------------------------------


def members(kind: type) -> Iterator[tuple[str, object]]:
    """What a class defines itself: its methods and properties."""
    for name, thing in vars(kind).items():
        if not name.startswith("_") and isinstance(thing, FunctionType | property):
            yield name, thing


def text_of(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def examples_of(text: str) -> str:
    return "".join(example.source for example in doctest.DocTestParser().get_examples(text))


def has(text: str, section: str, name: str) -> bool:
    """Whether a section says something of a name, and of its type."""
    lines = text.partition(f"\n{section}:\n")[2].partition("\n\n")[0]
    return re.search(rf"^    {name} \(.+?\): \S", lines, re.M) is not None


def faults(name: str, thing: object) -> Iterator[str]:
    """What is not said of a class, a function, a method or a property."""
    text = text_of(thing)
    if not re.match(r"[A-Z][^\n]*(\n[^\n]+)*[.…]", text):
        yield f"{name}: no summary"
    if not isinstance(thing, FunctionType):
        return
    signature = inspect.signature(thing)
    for parameter in signature.parameters:
        if parameter != "self" and not has(text, "Args", parameter):
            yield f"{name}: nothing about its argument {parameter}"
    given = str(signature.return_annotation)
    section = "Yields:" if re.search("Generator|Iterator", given) else "Returns:"
    if given != "None" and section not in text:
        yield f"{name}: no {section}"
    if "Raises:" not in text:
        yield f"{name}: no Raises:"


def all_faults(name: str, thing: object) -> Iterator[str]:
    """With those of its members. A method may be shown in the example of its class."""
    shown = examples_of(text_of(thing))
    yield from faults(name, thing)
    if not shown:
        yield f"{name}: no example"
    if isinstance(thing, type):
        for field in getattr(thing, "__dataclass_fields__", getattr(thing, "__struct_fields__", ())):
            if not has(text_of(thing), "Attributes", field):
                yield f"{name}: nothing about its attribute {field}"
        for member, function in members(thing):
            yield from faults(f"{name}.{member}", function)
            if not re.search(rf"\b{member}\b", shown + examples_of(text_of(function))):
                yield f"{name}.{member}: no example"


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_it_is_documented(module: str, name: str) -> None:
    assert not [*all_faults(name, public(module, name))]


def test_what_is_not_said_is_found() -> None:
    class Silent:
        def call(self, argument: int) -> int:
            return argument

    assert [*all_faults("Silent", Silent)] == [
        "Silent: no summary",
        "Silent: no example",
        "Silent.call: no summary",
        "Silent.call: nothing about its argument argument",
        "Silent.call: no Returns:",
        "Silent.call: no Raises:",
        "Silent.call: no example",
    ]


@pytest.mark.parametrize("module", ["elf.job", "elf.client"])
def test_all_of_a_room_is_public(module: str) -> None:
    """But types of values, which are no classes and no functions."""
    names = importlib.import_module(module).__all__
    ours = [name for name in names if inspect.isclass(public(module, name)) or callable(public(module, name))]
    assert {*ours} - {"Lines", "Message"} == {*PUBLIC[module].split()}


# -- that it is so -------------------------------------------------------------------------------------------


def run_examples(tests: list[doctest.DocTest], loop: asyncio.AbstractEventLoop) -> None:
    """As in ``python -m asyncio``: ``await`` needs no function around it."""

    def perform(code: CodeType, names: dict[str, object]) -> None:
        waits = eval(code, names)
        if inspect.iscoroutine(waits):
            loop.run_until_complete(asyncio.wait_for(waits, 30))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctest, "exec", perform, raising=False)
        said: list[str] = []
        for test in tests:
            runner = doctest.DocTestRunner()
            runner.run(test, compileflags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, out=said.append)
        assert not said, "".join(said)


def cases_of(module: str, name: str, more: Mapping[str, object]) -> list[doctest.DocTest]:
    thing = public(module, name)
    names = vars(inspect.getmodule(thing)) | dict(more)
    found = doctest.DocTestFinder().find(thing, name, globs=names)
    assert any(test.examples for test in found)
    return sorted(found, key=lambda test: test.name == "Client.leave")  # after it there is no fleet


@pytest.mark.parametrize(("module", "name"), [one for one in NAMES if one[1] not in OF_A_FLEET])
def test_its_examples_run(module: str, name: str, tmp_path: Path) -> None:
    given = {"two_agents": two_agents.two_agents, "Popular": two_agents.Popular, "folder": tmp_path}
    loop = asyncio.new_event_loop()
    run_examples(cases_of(module, name, given), loop)
    loop.close()


def test_examples_of_the_client_run_against_an_agent(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1)
    fleet.agents[0].cluster = "elf"
    address = fleet.agents[0].address
    loop = asyncio.new_event_loop()
    try:
        fleet.start()
        fleet.begin_writing()
        client = loop.run_until_complete(asyncio.wait_for(ready(address), 60))
        for name in sorted(OF_A_FLEET, key=lambda name: name == "Client"):
            run_examples(cases_of("elf.client", name, {"address": address, "client": client}), loop)
        loop.run_until_complete(client.close())
    finally:
        fleet.stop()
        loop.close()


async def ready(address: str) -> Client:
    """A client of the agent, when its job has a window."""
    client = connect(address)
    while True:
        try:
            await client.open()
            await client.sql(BUSY)
        except ElfError:
            await asyncio.sleep(0.2)
        else:
            async for _ in client.subscribe("busy", windows=1):
                pass
            return client
