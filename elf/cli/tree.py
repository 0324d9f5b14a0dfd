"""``elf tree``: the reduction trees of a job, one a flow, as their roots last heard of them; as text or as
pictures.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from elf.cli.ask import ask
from elf.cli.printing import console, json_text, say
from elf.client import Client, connect
from elf.client.values import for_terminal
from elf.errors import ElfError

if TYPE_CHECKING:
    from rich.text import Text


class Edge(msgspec.Struct, frozen=True):
    """A member and the address of its parent (its own, or none, for the root), and its region, where trees go
    by regions."""

    name: str
    address: str
    parent: str
    sealed_us: int | None = None
    region: str = ""


class FlowTree(msgspec.Struct, frozen=True):
    """A flow of the job: its uid, its stream, the address of its root, the jobs that read it, its members."""

    flow: str
    stream: str
    root: str
    readers: tuple[str, ...]
    edges: tuple[Edge, ...]


class TreeStatus(msgspec.Struct, frozen=True):
    """The answer to the call ``tree``. ``job`` may be ``stream:`` and a stream's name. The master is the
    root of the first flow, if the job bootstrapped it."""

    job: str
    master: str
    flows: tuple[FlowTree, ...]

    @property
    def title(self) -> str:
        """Whose trees they are."""
        return self.job.replace(":", " ", 1) if self.job.startswith("stream:") else f"job {self.job}"


@dataclass(frozen=True)
class Shape:
    """A tree in numbers: members, depth in edges from the root, and the most children of one node."""

    members: int
    depth: int
    fanout: int

    def __str__(self) -> str:
        members = "1 member" if self.members == 1 else f"{self.members} members"
        return f"{members}, depth {self.depth}, fan-out {self.fanout}"


def read_tree(answer: dict[str, object]) -> TreeStatus:
    """The answer of an agent as a value. Raises ``ElfError`` when it is something else."""
    try:
        return msgspec.convert(answer, TreeStatus)
    except msgspec.ValidationError as error:
        raise ElfError(f"the agent's answer to tree cannot be read: {error}") from None


def children_of(tree: FlowTree) -> dict[str, list[str]]:
    """Address → addresses of its children, below the root. A parent that is no member (a forwarder) has its
    place too.

    What hangs at nothing that leads to the root (it is being repaired) stands under the address "".
    """
    children: dict[str, list[str]] = defaultdict(list)
    parents = {edge.address: edge.parent for edge in tree.edges if edge.address != tree.root}
    for address, parent in parents.items():
        children[parent if parent and parent != address else ""].append(address)
    for parent in list(children):
        if parent not in parents and parent not in ("", tree.root):
            children[tree.root].append(parent)
    reached = set(_below(tree.root, children))
    loose = [address for address in parents if address not in reached]
    if loose:
        children[""] = sorted({*children.get("", []), *loose})
    return {parent: sorted(found) for parent, found in children.items()}


def _below(root: str, children: dict[str, list[str]]) -> list[str]:
    found, queue = [root], [root]
    while queue:
        for child in children.get(queue.pop(), []):
            if child not in found:
                found.append(child)
                queue.append(child)
    return found


def heads_of(tree: FlowTree) -> set[str]:
    """The addresses of those whose parents are in other regions than they."""
    region = {edge.address: edge.region for edge in tree.edges}
    below = (edge for edge in tree.edges if edge.address != tree.root and edge.parent and edge.region)
    return {edge.address for edge in below if region.get(edge.parent) != edge.region}


def shape(tree: FlowTree) -> Shape:
    """The tree in numbers."""
    children = children_of(tree)
    depth, level = 0, [tree.root]
    while level := [child for node in level for child in children.get(node, [])]:
        depth += 1
    fanout = max((len(found) for node, found in children.items() if node), default=0)
    return Shape(len({edge.address for edge in tree.edges}), depth, fanout)


def show_tree(address: str, cluster: str, job: str, *, as_json: bool, plot: Path | None = None) -> int:
    """Print the trees of a job, or draw them into files (of further flows with their number in the name)."""
    if plot is not None:
        from elf.cli.pictures import check_plot

        check_plot(plot)

    async def question() -> tuple[dict[str, object], dict[str, str]]:
        async with connect(address, cluster=cluster) as client:
            return await client.tree(job), await _names(client)

    answer, names = ask(question())
    facts = read_tree(answer) if plot is not None or not as_json else None
    if facts is not None and plot is not None:
        for number, tree in enumerate(facts.flows, 1):
            path = plot if number == 1 else plot.with_stem(f"{plot.stem}-{number}")
            plot_tree(facts, tree, names, path)
    if as_json:
        print(json_text(answer))
    elif facts is not None:
        if plot is None:
            say(facts.title, sys.stdout)
        for tree in facts.flows:
            if plot is None:
                _print(facts, tree, names)
            print(shape(tree))
    return 0


async def _names(client: Client) -> dict[str, str]:
    """Address → name of every agent that has a stream: a master may have another than the job's."""
    members = (await client.sql("SHOW MEMBERS")).table
    return {} if members is None else {str(row["address"]): str(row["agent"]) for row in members.to_pylist()}


class _Labels:
    """What is written at each node: its name and address, what it is besides a member, and how far it is
    behind the member that has sealed most (event time)."""

    def __init__(self, facts: TreeStatus, tree: FlowTree, names: dict[str, str]) -> None:
        self._master = facts.master
        self._root = tree.root
        self._members = {edge.address: edge for edge in tree.edges}
        self._names = names
        sealed = [edge.sealed_us for edge in tree.edges if edge.sealed_us is not None]
        self._newest = max(sealed, default=None)
        self._loose = frozenset(children_of(tree).get("", ()))
        self._heads = heads_of(tree)

    def name(self, address: str) -> str:
        edge = self._members.get(address)
        name = edge.name if edge else self._names.get(address)
        return for_terminal(f"{name} ({address})" if name else address)

    def note(self, address: str) -> str:
        """Empty for a member that is as far as any other."""
        notes = ["root"] if address == self._root != self._master else []
        notes += ["master"] if address == self._master else []
        notes += ["has no parent yet"] if address in self._loose else []
        edge = self._members.get(address)
        if edge is not None and edge.region:
            notes.append(f"head of {edge.region}" if address in self._heads else f"in {edge.region}")
        if edge is None:
            notes += [] if address == self._root else ["forwards"]
        elif self._newest is not None and edge.sealed_us is None:
            notes.append("nothing sealed yet")
        elif self._newest is not None and edge.sealed_us is not None and edge.sealed_us < self._newest:
            notes.append(f"{(self._newest - edge.sealed_us) / 1e6:g} s behind")
        return ", ".join(notes)

    def text(self, address: str) -> Text:
        from rich.text import Text

        forwards = address not in self._members and address != self._root
        style = "bold" if address == self._root else "dim" if forwards else ""
        note = self.note(address)
        return Text.assemble((self.name(address), style), (f"  {note}" if note else "", "yellow"))


def _print(facts: TreeStatus, tree: FlowTree, names: dict[str, str]) -> None:
    from rich.tree import Tree

    labels, children = _Labels(facts, tree, names), children_of(tree)

    def grow(branch: Tree, address: str) -> None:
        for child in children.get(address, []):
            grow(branch.add(labels.text(child)), child)

    root = Tree(labels.text(tree.root), guide_style="dim")
    grow(root, tree.root)
    out = console(sys.stdout)
    readers = f"flow {tree.flow[:8]} over {tree.stream}, read by {', '.join(tree.readers)}"
    say(readers if tree.flow else f"stream {tree.stream}", sys.stdout)
    out.print(root)
    for address in children.get("", []):
        out.print(labels.text(address))


def plot_tree(facts: TreeStatus, tree: FlowTree, names: dict[str, str], path: Path) -> None:
    """Draw a tree into a file: PNG or SVG by its suffix."""
    import numpy as np

    from elf.cli.pictures import draw_tree

    labels, children = _Labels(facts, tree, names), children_of(tree)
    loose = children.get("", [])
    above = {child: parent for parent, below in children.items() for child in below if child not in loose}
    addresses = sorted({tree.root, *above, *loose})
    place = {address: number for number, address in enumerate(addresses)}
    members = {edge.address for edge in tree.edges}
    draw_tree(
        [" · ".join(filter(None, (labels.name(a), labels.note(a)))) for a in addresses],
        np.array([place[above.get(address, address)] for address in addresses], np.int64),
        [address in members for address in addresses],
        place[tree.root],
        f"{facts.title}: {shape(tree)}" + (f", {len(loose)} without a parent" if loose else ""),
        path,
    )
