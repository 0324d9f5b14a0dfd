"""``elf tree``: the reduction tree of a job, as its master last heard of it."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass

import msgspec

from elf.cli.ask import ask
from elf.cli.printing import console
from elf.client import Client, connect
from elf.errors import ElfError


class Edge(msgspec.Struct, frozen=True):
    """A member and the address of its parent (its own, or none, for the root)."""

    name: str
    address: str
    parent: str
    sealed_us: int | None = None


class TreeFacts(msgspec.Struct, frozen=True):
    """The answer to the call ``tree``."""

    job: str
    master: str
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Shape:
    """A tree in numbers: members, depth in edges from the master, and the most children of one node."""

    members: int
    depth: int
    fanout: int

    def __str__(self) -> str:
        members = "1 member" if self.members == 1 else f"{self.members} members"
        return f"{members}, depth {self.depth}, fan-out {self.fanout}"


def read_tree(answer: dict[str, object]) -> TreeFacts:
    """The answer of an agent as a value. Raises ``ElfError`` when it is something else."""
    try:
        return msgspec.convert(answer, TreeFacts)
    except msgspec.ValidationError as error:
        raise ElfError(f"the agent's answer to tree cannot be read: {error}") from None


def children_of(facts: TreeFacts) -> dict[str, list[str]]:
    """Address → addresses of its children, below the master. A parent that is no member (a forwarder) has its
    place too.

    What hangs at nothing that leads to the master (it is being repaired) stands under the address "".
    """
    children: dict[str, list[str]] = defaultdict(list)
    parents = {edge.address: edge.parent for edge in facts.edges if edge.address != facts.master}
    for address, parent in parents.items():
        children[parent if parent and parent != address else ""].append(address)
    for parent in list(children):
        if parent not in parents and parent not in ("", facts.master):
            children[facts.master].append(parent)
    reached = set(_below(facts.master, children))
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


def shape(facts: TreeFacts) -> Shape:
    """The tree in numbers."""
    children = children_of(facts)
    depth, level = 0, [facts.master]
    while level := [child for node in level for child in children.get(node, [])]:
        depth += 1
    fanout = max((len(found) for node, found in children.items() if node), default=0)
    return Shape(len({edge.address for edge in facts.edges}), depth, fanout)


def show_tree(address: str, cluster: str, job: str, *, as_json: bool) -> int:
    """Print the tree of a job."""

    async def question() -> tuple[dict[str, object], dict[str, str]]:
        async with connect(address, cluster=cluster) as client:
            return await client.tree(job), await _names(client)

    answer, names = ask(question())
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return 0
    facts = read_tree(answer)
    _draw(facts, names)
    print(shape(facts))
    return 0


async def _names(client: Client) -> dict[str, str]:
    """Address → name of every agent that has a stream: a master may have another than the job's."""
    members = (await client.sql("SHOW MEMBERS")).table
    return {} if members is None else {str(row["address"]): str(row["agent"]) for row in members.to_pylist()}


def _draw(facts: TreeFacts, names: dict[str, str]) -> None:
    from rich.text import Text
    from rich.tree import Tree

    members = {edge.address: edge.name for edge in facts.edges}
    children = children_of(facts)

    def label(address: str, note: str = "") -> Text:
        name = members.get(address) or names.get(address)
        note = note or ("" if address in members else "  forwards")
        return Text(f"{name} ({address}){note}" if name else f"{address}{note}")

    def grow(branch: Tree, address: str) -> None:
        for child in children.get(address, []):
            grow(branch.add(label(child)), child)

    root = Tree(label(facts.master, "  master"))
    grow(root, facts.master)
    out = console(sys.stdout)
    out.print(Text(f"job {facts.job}"))
    out.print(root)
    for address in children.get("", []):
        out.print(label(address, "  has no parent yet"))
