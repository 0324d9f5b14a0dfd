"""The example file: every key, commented out, with its default and what it is for. As it is it sets
nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from agents.settings.declare import Setting, members_of, variable

WIDTH = 100


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
            yield f"  # {member.metadata['example']}:"
            yield from _section(below, f"{path}.<name>.", "  ", "  # ")
        else:
            yield from _section(below, f"{path}.", f"{indent}  ", comment)


def _setting(name: str, path: str, known: Setting, before: str) -> Iterator[str]:
    yield from _wrapped(f"{known.about} ({known.kind.name}; {variable(path)})", f"{before}# ")
    if known.required:
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
