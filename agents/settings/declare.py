"""Declaring settings: a section is a frozen dataclass, and each of its fields is a ``setting`` (default,
kind, what it is for), a ``required`` one, a ``section``, or ``named`` sections under names of the user's
choice.

``example`` writes them as a file: every key, commented out, with its default and what it is for. As it is it
sets nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Final, TypeVar, cast

from agents.settings.kinds import Kind

T = TypeVar("T")
ENV_PREFIX: Final = "ELF_"

WIDTH = 100


@dataclass(frozen=True)
class Setting:
    """What is known about one key. A ``required`` one has no default but an example, which stands in the
    example file; another may have one in the place of its default."""

    kind: Kind[object]
    about: str
    default: object
    required: bool = False
    example: object = None


@dataclass(frozen=True)
class Names:
    """Which names a user may choose, as a pattern and in words."""

    fit: re.Pattern[str]
    said: str


_NAME: Final = "[A-Za-z_][A-Za-z0-9_-]*"
PLAIN: Final = Names(re.compile(_NAME), "a name has letters, digits, - and _ only")
OF_JOBS: Final = Names(
    re.compile(f"[A-Za-z0-9_][A-Za-z0-9._@-]*/{_NAME}"),
    "a job is named in the file, with its creator: CREATOR/JOB",
)


def setting(default: T, kind: Kind[T], about: str, example: T | None = None) -> T:
    """A field of a section: its default, its kind, and what it is for (one or two sentences)."""
    known = Setting(cast("Kind[object]", kind), about, default, example=example)
    return field(default_factory=lambda: default, metadata={"setting": known})


def required(kind: Kind[T], about: str, example: T) -> T:
    """A field without a default; ``example`` stands in the example file."""
    known = Setting(cast("Kind[object]", kind), about, None, required=True, example=example)
    return cast("T", field(metadata={"setting": known}))


def section(cls: type[T], about: str) -> T:
    """A field that is a section of its own."""
    return field(default_factory=cls, metadata={"section": cls, "about": about})


def named(cls: type[T], about: str, example: str, names: Names = PLAIN) -> Mapping[str, T]:
    """A field that maps names of the user's choice to sections of one kind."""
    known = {"named": cls, "about": about, "example": example, "names": names}
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
    return ENV_PREFIX + re.sub(r"[./-]", "_", path).upper()


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


def example(cls: type, head: str) -> str:
    """The text of the file. ``head`` opens it."""
    return (
        "\n".join([*(f"# {line}".rstrip() for line in head.splitlines()), *_section(cls, "", "", "")]) + "\n"
    )


def _section(cls: type, prefix: str, indent: str, comment: str) -> Iterator[str]:
    """The lines of a section's keys. ``comment`` stands before all of them, "# " when the section is
    commented out."""
    for member in members_of(cls):
        path = f"{prefix}{member.name}"
        if "setting" in member.metadata:
            if not prefix:
                yield ""
            yield from _setting(member.name, path, member.metadata["setting"], f"{comment}{indent}")
            continue
        below = member.metadata.get("section") or member.metadata["named"]
        yield ""
        yield from _wrapped(member.metadata["about"], f"{comment}{indent}# ")
        yield f"{comment}{indent}{member.name}:"
        if "named" in member.metadata:
            yield f"{comment}{indent}  # {member.metadata['example']}:"
            yield from _section(below, f"{path}.<name>.", "  ", f"{comment}{indent}  # ")
        else:
            yield from _section(below, f"{path}.", f"{indent}  ", comment)


def _setting(name: str, path: str, known: Setting, before: str) -> Iterator[str]:
    yield from _wrapped(f"{known.about} ({known.kind.name}; {variable(path)})", f"{before}# ")
    if known.example is not None:
        yield f"{before}{name}: {_yaml(known.example)}"
    else:
        yield f"{before}# {name}: {_yaml(known.default)}"


def _wrapped(text: str, before: str) -> Iterator[str]:
    line = before
    for word in text.split():
        if len(line) + len(word) > WIDTH and line != before:
            yield line.rstrip()
            line = before
        line += f"{word} "
    yield line.rstrip()


def _yaml(value: object) -> str:
    """A value in YAML, on one line."""
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return json.dumps(list(value))
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if isinstance(value, str) and value and value[0].isalnum():
        return value if value not in ("null", "true", "false") else json.dumps(value)
    return json.dumps(value)
