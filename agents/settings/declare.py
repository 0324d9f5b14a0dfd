"""Declaring settings: a section is a frozen dataclass, and each of its fields is a ``setting`` (default,
kind, what it is for), a ``required`` one, a ``section``, or ``named`` sections under names of the user's
choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Final, TypeVar, cast

from agents.settings.kinds import Kind

T = TypeVar("T")
ENV_PREFIX: Final = "ELF_"


@dataclass(frozen=True)
class Setting:
    """What is known about one key. A ``required`` one has no default but an example."""

    kind: Kind[object]
    about: str
    default: object
    required: bool = False
    example: object = None


def setting(default: T, kind: Kind[T], about: str) -> T:
    """A field of a section: its default, its kind, and what it is for (one or two sentences)."""
    known = Setting(cast("Kind[object]", kind), about, default)
    return field(default_factory=lambda: default, metadata={"setting": known})


def required(kind: Kind[T], about: str, example: T) -> T:
    """A field without a default; ``example`` stands in the example file."""
    known = Setting(cast("Kind[object]", kind), about, None, required=True, example=example)
    return cast("T", field(metadata={"setting": known}))


def section(cls: type[T], about: str) -> T:
    """A field that is a section of its own."""
    return field(default_factory=cls, metadata={"section": cls, "about": about})


def named(cls: type[T], about: str, example: str) -> Mapping[str, T]:
    """A field that maps names of the user's choice to sections of one kind."""
    known = {"named": cls, "about": about, "example": example}
    return cast("Mapping[str, T]", field(default_factory=dict, metadata=known))


def settings_of(cls: type, prefix: str = "") -> Iterator[tuple[str, Setting]]:
    """Every key below a section with its path; names of the user's choice are ``<name>``."""
    for member in members_of(cls):
        path = f"{prefix}{member.name}"
        if "setting" in member.metadata:
            yield path, member.metadata["setting"]
        elif "section" in member.metadata:
            yield from settings_of(member.metadata["section"], f"{path}.")
        else:
            yield from settings_of(member.metadata["named"], f"{path}.<name>.")


def variable(path: str) -> str:
    """The environment variable of a key."""
    return ENV_PREFIX + re.sub(r"[.-]", "_", path).upper()


def members_of(cls: type) -> tuple[Field[object], ...]:
    return tuple(member for member in fields(cls) if member.metadata)


def values_of(part: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every key below a section with the value that it has."""
    for member in members_of(type(part)):
        value, path = getattr(part, member.name), f"{prefix}{member.name}"
        if "setting" in member.metadata:
            yield path, value
        elif "section" in member.metadata:
            yield from values_of(value, f"{path}.")
        elif "named" in member.metadata:
            for name, item in value.items():
                yield from values_of(item, f"{path}.{name}.")
