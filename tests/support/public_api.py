"""Whether the public API says what it takes, gives and raises, and whether its examples run."""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType

import pytest

from elf.job import Job


def public(module: str, name: str) -> object:
    return getattr(importlib.import_module(module), name)


def members(kind: type) -> Iterator[tuple[str, object]]:
    """What a class defines itself, and a job has from classes that are not public: its methods and
    properties. Jobs to submit are not there to be called."""
    if kind.__module__.startswith("elf.examples"):
        return
    for base in Job.__mro__ if kind is Job else (kind,):
        for name, thing in vars(base).items():
            if not name.startswith("_") and isinstance(thing, FunctionType | property):
                yield name, thing


def fields(kind: type) -> Iterator[str]:
    """Of a class of values, and what may be set of a class of jobs."""
    yield from getattr(kind, "__dataclass_fields__", getattr(kind, "__struct_fields__", ()))
    if issubclass(kind, Job):
        for name, thing in vars(kind).items():
            if not name.startswith("_") and not isinstance(thing, FunctionType | property):
                yield name


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
        for field in fields(thing):
            if not has(text_of(thing), "Attributes", field):
                yield f"{name}: nothing about its attribute {field}"
        for member, function in members(thing):
            yield from faults(f"{name}.{member}", function)
            if not re.search(rf"\b{member}\b", shown + examples_of(text_of(function))):
                yield f"{name}.{member}: no example"


def run_examples(tests: list[doctest.DocTest], loop: asyncio.AbstractEventLoop) -> None:
    """As in ``python -m asyncio``: ``await`` needs no function around it."""

    def perform(code: CodeType, names: dict[str, object]) -> None:
        waits = eval(code, names)
        if inspect.iscoroutine(waits):
            loop.run_until_complete(asyncio.wait_for(waits, 60))

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
