"""From a tree to sections: unknown keys, wrong values and missing keys become problems, a line each."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import Field
from typing import Final, TypeVar

from agents.settings.declare import Setting, members_of, settings_of
from agents.settings.kinds import Unfit, nearest
from agents.settings.tree import Branch, Leaf, plain

T = TypeVar("T")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def build(
    cls: type[T], node: Leaf | Branch, problems: list[str], prefix: str = "", top: type | None = None
) -> T:
    """A section from its part of the tree.

    What is wrong goes to ``problems``, and its value is the default then (of a required key: nothing of use).
    """
    members = {member.name: member for member in members_of(cls)}
    if isinstance(node, Leaf):
        if node.value not in (None, {}):
            problems.append(f"{node.place}: {prefix.rstrip('.')} must have keys: {', '.join(members)}")
        node = Branch({}, node.place)
    for key, child in node.children.items():
        if key not in members:
            known = _suggestion(key, prefix, list(members), top or cls)
            problems.append(f"{child.place}: unknown key {prefix}{key} (nearest: {known})")
    values: dict[str, object] = {}
    for key, member in members.items():
        setting: Setting | None = member.metadata.get("setting")
        if setting is None or key in node.children:
            child = node.children.get(key, Leaf(None, node.place))
            values[key] = _value(member, child, problems, f"{prefix}{key}", top or cls)
        elif setting.required:
            problems.append(f"{node.place}: {prefix}{key} is missing: {setting.about}")
            values[key] = None
    return cls(**values)


def _value(member: Field[object], child: Leaf | Branch, problems: list[str], path: str, top: type) -> object:
    """The value of one field; the default when it cannot be used."""
    if "section" in member.metadata:
        return build(member.metadata["section"], child, problems, f"{path}.", top)
    if "named" in member.metadata:
        return _named_sections(member.metadata["named"], child, problems, path, top)
    known: Setting = member.metadata["setting"]
    try:
        return known.kind.read(plain(child))
    except Unfit as error:
        problems.append(f"{child.place}: {path} {error}")
        return known.default


def _named_sections(
    cls: type, node: Leaf | Branch, problems: list[str], path: str, top: type
) -> Mapping[str, object]:
    if isinstance(node, Leaf):
        if node.value not in (None, {}):
            problems.append(f"{node.place}: {path} must have a name for each of its parts")
        return {}
    found: dict[str, object] = {}
    for name, child in node.children.items():
        if not _NAME.fullmatch(name):
            problems.append(f"{child.place}: {path}.{name}: a name has letters, digits, - and _ only")
        found[name] = build(cls, child, problems, f"{path}.{name}.", top)
    return found


def _suggestion(key: str, prefix: str, siblings: list[str], top: type) -> str:
    """The nearest known key: a sibling that looks alike, else one of that name elsewhere, else the likest."""
    close = difflib.get_close_matches(key, siblings, n=1, cutoff=0.75)
    if close:
        return prefix + close[0]
    everywhere = [path for path, _ in settings_of(top)]
    last = {path.rpartition(".")[2]: path for path in reversed(everywhere)}
    elsewhere = difflib.get_close_matches(key, list(last), n=1, cutoff=0.8)
    return last[elsewhere[0]] if elsewhere else prefix + nearest(key, siblings)
