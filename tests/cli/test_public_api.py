"""The public API says what it takes, gives and raises, and its examples run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from types import FunctionType

import pytest

from tests.support import two_agents

PUBLIC = {
    "elf.job": "Job JobError QueryFailed Rounds all_lines lines_of",
}
"""Modules, and the classes and functions that users import from them; ``docs/api.md`` lists them."""
NAMES = [(module, name) for module, names in PUBLIC.items() for name in names.split()]
GLOBALS = {"two_agents": two_agents.two_agents, "Popular": two_agents.Popular}


def public(module: str, name: str) -> object:
    return getattr(importlib.import_module(module), name)


def members(kind: type) -> Iterator[tuple[str, object]]:
    """What a class defines itself: its methods and properties."""
    for name, thing in vars(kind).items():
        if not name.startswith("_") and isinstance(thing, FunctionType | property):
            yield name, thing


def examples_of(text: str) -> str:
    return "".join(example.source for example in doctest.DocTestParser().get_examples(text))


def faults(name: str, function: object) -> Iterator[str]:
    """What is not said of a function, a method or a property."""
    text = inspect.getdoc(function) or ""
    if not re.match(r"[A-Z].*?[.:](\s|$)", text, re.S):
        yield f"{name}: no summary"
    if not isinstance(function, FunctionType):
        return
    signature = inspect.signature(function)
    arguments = text.partition("Args:\n")[2].partition("\n\n")[0]
    for parameter in signature.parameters:
        if parameter != "self" and not re.search(rf"^    {parameter} \(.+?\): \S", arguments, re.M | re.S):
            yield f"{name}: nothing about its argument {parameter}"
    given = "Yields:" if "Generator" in str(signature.return_annotation) else "Returns:"
    if signature.return_annotation != "None" and given not in text:
        yield f"{name}: no {given}"
    if "Raises:" not in text:
        yield f"{name}: no Raises:"


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_it_is_documented(module: str, name: str) -> None:
    thing = public(module, name)
    text = inspect.getdoc(thing) or ""
    shown = examples_of(text)
    found = [] if shown else [f"{name}: no example"]
    if isinstance(thing, type):
        found += [] if re.match(r"[A-Z].*?[.:](\s|$)", text, re.S) else [f"{name}: no summary"]
        for member, function in members(thing):
            found += faults(f"{name}.{member}", function)
            if not re.search(rf"\b{member}\b", shown + examples_of(inspect.getdoc(function) or "")):
                found.append(f"{name}.{member}: no example")
    else:
        found += faults(name, thing)
    assert not found


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_its_examples_run(module: str, name: str) -> None:
    thing = public(module, name)
    names = vars(inspect.getmodule(thing)) | GLOBALS
    for test in doctest.DocTestFinder().find(thing, name, globs=names):
        said: list[str] = []
        doctest.DocTestRunner().run(test, out=said.append)
        assert not said, "".join(said)
