"""What a user wrote, as a tree that remembers where each part stands (the YAML file, and the environment over
it), and from it the sections: unknown keys, wrong values and missing keys become problems, a line each.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import Field, dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from agents.settings.declare import ENV_PREFIX, Names, Setting, members_of, settings_of, variable
from agents.settings.kinds import Unfit, nearest
from elf.errors import ConfigError

T = TypeVar("T")


class ConfigProblems(ConfigError):
    """A configuration that cannot be used; ``problems`` are single lines, and the text is all of them."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Leaf:
    """A value and the place that it comes from (``elf.yaml:7``, or a variable)."""

    value: object
    place: str


@dataclass
class Branch:
    """Keys with what is under them."""

    children: dict[str, Leaf | Branch]
    place: str


def read_yaml(path: Path, problems: list[str]) -> Branch:
    """The tree of a YAML file. Raises ``ConfigProblems`` when it cannot be read at all."""
    try:
        content = path.read_text(encoding="utf-8")
        loader = yaml.SafeLoader(content)
        node = loader.get_single_node()
        if node is None:
            return Branch({}, str(path))
        if not isinstance(node, yaml.MappingNode):
            raise ConfigProblems([f"{path}:1: must be keys with values"])
        return _branch(loader, node, path, problems)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigProblems([f"{path}: cannot be read: {reason}"]) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
        raise ConfigProblems([f"{path}{line}: not YAML: {what}"]) from None
    except RecursionError:
        raise ConfigProblems([f"{path}: nested too deeply"]) from None


def _branch(loader: yaml.SafeLoader, node: yaml.MappingNode, path: Path, problems: list[str]) -> Branch:
    loader.flatten_mapping(node)
    children: dict[str, Leaf | Branch] = {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        place = f"{path}:{key_node.start_mark.line + 1}"
        if key in children:
            problems.append(f"{place}: {key} stands here twice")
        if isinstance(value_node, yaml.MappingNode) and value_node.value:
            children[key] = Branch(_branch(loader, value_node, path, problems).children, place)
            continue
        try:
            children[key] = Leaf(loader.construct_object(value_node, deep=True), place)
        except ValueError as error:  # such as a date with a 13th month
            problems.append(f"{place}: {key}: {error}")
    return Branch(children, str(path))


def plain(node: Leaf | Branch) -> object:
    """The value of a node as YAML gave it."""
    if isinstance(node, Leaf):
        return node.value
    return {key: plain(child) for key, child in node.children.items()}


def overlay_variables(root: Branch, cls: type, env: Mapping[str, str]) -> list[str]:
    """Put what the environment says over the tree. Returns notes, a line each: where a variable wins over
    another value that the file states, and of variables that look like a mistake.

    An empty variable is none. One that is no setting cannot be an error: orchestrators put their own there.
    """
    notes = []
    keys = {variable(path): (path, known) for path, known in settings_of(cls) if "<name>" not in path}
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX) or not env[name].strip():
            continue
        found = keys.get(name) or _named_variable(root, cls, name)
        if found is None:
            guess = nearest(name, list(keys))
            if difflib.SequenceMatcher(None, name, guess).ratio() > 0.85:
                notes.append(f"{name} is no setting and was not used (nearest: {guess})")
            continue
        path, known = found
        leaf = Leaf(known.kind.split(env[name].strip()), name)
        before = _put(root, path.split("."), leaf)
        if before is not None and not _same(known, plain(before), leaf.value):
            stated = f"{path}: {plain(before)} ({before.place})"
            notes.append(f"{name}={env[name].strip()} of the environment is used instead of {stated}")
    return notes


def _named_variable(root: Branch, cls: type, name: str, above: str = "") -> tuple[str, Setting] | None:
    """The key of ``ELF_STREAMS_<NAME>_<KEY>``; the name is one of the file's if it fits, else lower case.
    ``above``: the path of the section, with a point at its end."""
    for member in members_of(cls):
        start = f"{variable(above + member.name)}_"
        if not name.startswith(start):
            continue
        below = root.children.get(member.name)
        if "section" in member.metadata:
            inner = below if isinstance(below, Branch) else Branch({}, root.place)
            return _named_variable(inner, member.metadata["section"], name, f"{above}{member.name}.")
        if "named" not in member.metadata:
            continue
        names = list(below.children) if isinstance(below, Branch) else []
        ends = sorted(settings_of(member.metadata["named"]), key=lambda item: -len(item[0]))
        for key, known in ends:
            end = f"_{key.upper().replace('.', '_')}"
            middle = name[len(start) : -len(end)]
            if name.endswith(end) and middle:
                fits = (known_name for known_name in names if variable(known_name) == ENV_PREFIX + middle)
                return f"{above}{member.name}.{next(fits, middle.lower())}.{key}", known
    return None


def _same(known: Setting, one: object, other: object) -> bool:
    """Whether two values that a user wrote mean the same."""
    try:
        return known.kind.read(one) == known.kind.read(other)
    except Unfit:
        return False


def _put(branch: Branch, path: list[str], leaf: Leaf) -> Leaf | Branch | None:
    """Returns what stood there."""
    for key in path[:-1]:
        below = branch.children.get(key)
        if not isinstance(below, Branch):
            below = Branch({}, leaf.place)
            branch.children[key] = below
        branch = below
    before = branch.children.get(path[-1])
    branch.children[path[-1]] = leaf
    return before


def build(
    cls: type[T], node: Leaf | Branch, problems: list[str], prefix: str = "", top: type | None = None
) -> T:
    """A section from its part of the tree.

    What is wrong goes to ``problems``, and its value is the default then (of a required key: nothing of use).
    """
    members = {member.name: member for member in members_of(cls)}
    if isinstance(node, Leaf):
        if node.value is False and "enabled" in members:  # "archive: off"
            return build(cls, Branch({"enabled": node}, node.place), problems, prefix, top)
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
        return _named_sections(member, child, problems, path, top)
    known: Setting = member.metadata["setting"]
    try:
        return known.kind.read(plain(child))
    except Unfit as error:
        problems.append(f"{child.place}: {path} {error}")
        return known.default


def _named_sections(
    member: Field[object], node: Leaf | Branch, problems: list[str], path: str, top: type
) -> Mapping[str, object]:
    names: Names = member.metadata["names"]
    if isinstance(node, Leaf):
        if node.value not in (None, {}):
            problems.append(f"{node.place}: {path} must have a name for each of its parts")
        return {}
    found: dict[str, object] = {}
    for name, child in node.children.items():
        if not names.fit.fullmatch(name):
            problems.append(f"{child.place}: {path}.{name}: {names.said}")
        found[name] = build(member.metadata["named"], child, problems, f"{path}.{name}.", top)
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
