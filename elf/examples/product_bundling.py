"""Product bundling (ELF paper, Figure 1 and section 2.3): products that the same users like and buy, as the
connected components of the graph of users and products, over a sliding window.

    elf demo --app product-bundling
    elf submit elf/examples/product_bundling.py --set window=60
    elf query product_bundling '"Angry Birds Season"'

A like and a buy are an edge between a user and a product. The edges of an agent are in a buffer tree that
forgets by time. Every ``every`` seconds the master looks at the edges of the last ``window`` seconds: agents
flush their trees, and never empty them.

An agent joins the products of each of its users and keeps one edge of every user: what the others said is in
the joins. Then comes a cycle of ``parts`` epochs. In each the agents bring the users of one range of keys
together up the tree: where two agents know a user, their products are joined, and one edge goes on. So the
master gets one edge a user and forgets it at once; what it has to keep are joins, fewer than there are
products. After the last epoch products that are joined are a bundle. There are as many parts as the last look
had users for, so that none has more than ``users_max`` at any agent.

Calls of the paper: Subscribe (edges, and which lines they are of), OnTimer, Multicast and OnMulticast (an
epoch begins), SendTo and OnRecv (made by ``Rounds``), Deliver; insert and flush of the buffer tree.

A cycle that an agent was too late for is given up after three times ``every``, and one in which an agent's
process ended at once; the next one begins anew, and nothing is kept of it. Edges, which ids they cover, and
looks survive.

To change it: ``window``, ``every``, ``users_max``, and what an edge is (``wanted``, ``store``, ``user``) with
``--set``.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from elf.aggregates import split_by_range
from elf.job import Lines, Rounds, lines_of

Joins = dict[str, str]
"""Products that are joined: from each but the least one of a bundle to a lesser one of it."""

JOINED = pa.schema([("one", pa.string()), ("other", pa.string())])
EDGES_BYTES_MAX = 7 << 19  # of an epoch's edges: with what is beside them they fit a message


class ProductBundling(Rounds):
    """Products that the same users like and buy.

    Attributes:
        every (float): seconds between two looks at the graph; edges are forgotten in such steps.
        window (float): seconds that an edge lives, up to the end of the step in which a look begins.
        user (str): the column with the user of a line.
        line (str): the column with its id, a number.
        wanted (str): a condition for lines that are edges.
        store (str): the store of which they are.
        users_max (int): users of an epoch, about.
        kept (int): looks that the master remembers.

    A query is the name of a product, and the reply ``{"look": n, "bundle": [products]}``. Or it is
    ``{"since": n}`` or None, and the reply a list with a dict for each look after the n-th: ``look``,
    ``agents``, ``epochs``, ``users``, ``bundles`` (lists of products), ``since`` (seconds since the epoch),
    ``covers`` (agent: first and last id, and how many lines there were) and ``ms``.

    Example:
        >>> master, below = two_agents(ProductBundling)
        >>> edges = {"user_id": ["ada", "ada"], "product": ["Doom", "Myst"], "lines": [1, 1]}
        >>> below.insert(pa.table(edges), "edges")
        >>> master.on_timer()
        >>> master.deliver(b"", "Doom")["bundle"]
        ['Doom', 'Myst']
    """

    every = 5.0  # seconds between two looks at the graph
    window = 300.0  # seconds that an edge lives
    user = "user.id"
    line = "id"
    wanted = "(likes > 0 OR buys_count > 0)"
    store = "video_games"
    users_max = 50_000  # of an epoch, about
    kept = 20  # looks that the master remembers; up to five agents keep them

    def start(self) -> None:
        edges = (
            f"{self.wanted} AND store = '{self.store}' AND product IS NOT NULL AND {self.user} IS NOT NULL"
        )
        lives, step = (round(1000 * secs) for secs in (self.window + 2 * self.every, self.every))
        self.subscribe(
            f"SELECT {self.user} AS user_id, product, COUNT(*) AS lines FROM clicks WHERE {edges} "
            f"GROUP BY {self.user}, product "
            f"WINDOWING {lives} MILLISECONDS SLIDE {step} MILLISECONDS",
            name="edges",
        )
        self.subscribe(
            f"SELECT store, MIN({self.line}) AS first, MAX({self.line}) AS last, COUNT(*) AS lines "
            f"FROM clicks WHERE {edges} GROUP BY store",
            name="covers",
        )
        self.state.setdefault("looks", [])  # at the master
        self.parts: list[pa.Table] = []  # of a cycle, as all that follows
        self.parts_since = 0.0
        self.joins: Joins = {}
        self.looking = False  # at the master, as all that follows
        self.wanted_parts = 1
        self.busy_until = 0.0  # a cycle that is not through by then is given up

    # -- the master: one epoch after the other ---------------------------------------------------------------

    def on_timer(self) -> None:
        if self.is_root and self.now >= self.busy_until:
            self.began = self.now
            self.busy_until = self.now + 3 * self.every
            self.since = (self.now // self.every + 1) * self.every - self.window
            self.look()

    def look(self) -> None:
        """The first epoch of a cycle."""
        self.epochs = self.users = 0
        self.joined: Joins = {}
        self.covered: Lines = {}
        self.looking = True
        self.begin({"since": self.since, "part": 0, "parts": self.wanted_parts})

    def finish(self, message: Any, total: dict[str, Any], agents: int) -> None:
        """All users of a part are in."""
        if total["lost"] or not self.looking:  # somebody's process has ended since the cycle began
            self.busy_until = 0.0
            return
        self.epochs += 1
        if total["edges"] is None:
            by_users = -(-total["users"] * message["parts"] // self.users_max)
            self.wanted_parts = max(by_users, 2 * message["parts"])  # where ids are long, by their bytes
            self.look()
        else:
            self.users += total["users"]
            join(self.joined, zip(*total["joins"].to_pydict().values(), strict=True))
            self.covered |= total["covers"]
            if message["part"] + 1 < message["parts"]:
                self.begin({**message, "part": message["part"] + 1})
            else:
                self.looked(agents)

    def looked(self, agents: int) -> None:
        """The last epoch of a cycle is over."""
        self.busy_until, self.looking = 0.0, False
        self.wanted_parts = -(-self.users // self.users_max) or 1
        members: dict[str, list[str]] = {}
        for product in self.joined:
            members.setdefault(least(self.joined, product), []).append(product)
        bundles = sorted(sorted([first, *others]) for first, others in members.items())
        look: dict[str, Any] = {"look": self.round, "agents": agents, "epochs": self.epochs}
        look |= {"users": self.users, "bundles": bundles, "since": self.since, "covers": self.covered}
        look |= {"ms": 1000 * (self.now - self.began)}
        self.state["looks"] = [*self.state["looks"], look][-self.kept :]

    # -- every agent -----------------------------------------------------------------------------------------

    def contribute(self, message: Any) -> dict[str, Any]:
        part, covers = message["part"], {}
        if part == 0:
            edges = self.flush("edges", since=message["since"]).select(["user_id", "product"])
            self.joins = {}
            kept = joined(edges, self.joins)
            self.parts = list(split_by_range(kept, ["user_id"], message["parts"]))
            self.parts_since = message["since"]
            covers = lines_of(self.me, self.flush("covers"), "lines")
        if (self.parts_since, len(self.parts)) != (message["since"], message["parts"]):
            return {"lost": True, "edges": None, "users": 0, "joins": table_of({}), "covers": {}}
        edges, self.parts[part] = self.parts[part], self.parts[part].slice(0, 0)
        joins = table_of(self.joins if part == 0 else {})
        return {"lost": False, "edges": edges, "users": edges.num_rows, "joins": joins, "covers": covers}

    def combine(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        both = {"lost": one["lost"] or other["lost"], "users": one["users"] + other["users"]}
        both["covers"] = one["covers"] | other["covers"]
        both["joins"] = pa.concat_tables([one["joins"], other["joins"]])
        edges = [one["edges"], other["edges"]]
        many = any(some is None for some in edges) or both["users"] > 16 * self.users_max
        both["edges"] = None if many else pa.concat_tables(edges, promote_options="permissive")
        return both

    def gathered(self, value: dict[str, Any]) -> dict[str, Any]:
        """One edge a user; none, if that are too many for a message."""
        if value["edges"] is None:
            return value
        joins: Joins = {}
        join(joins, zip(*value["joins"].to_pydict().values(), strict=True))
        edges = joined(value["edges"], joins)
        users = edges.num_rows
        kept = edges if users <= 2 * self.users_max and edges.nbytes <= EDGES_BYTES_MAX else None
        return {**value, "edges": kept, "users": users, "joins": table_of(joins)}

    def deliver(self, app: bytes, message: Any) -> Any:
        """Other jobs may ask what goes with a product, and for the looks after a number: ``{"since": n}``."""
        if isinstance(message, str):
            if not self.state["looks"]:
                return {"look": 0, "bundle": [message]}
            bundles = self.state["looks"][-1]["bundles"]
            bundle = next((bundle for bundle in bundles if message in bundle), [message])
            return {"look": self.state["looks"][-1]["look"], "bundle": bundle}
        since = message["since"] if message else 0
        return [look for look in self.state["looks"] if look["look"] > since]


# -- connected components ------------------------------------------------------------------------------------


def table_of(joins: Joins) -> pa.Table:
    """Joins as they are sent."""
    return pa.table({"one": list(joins), "other": list(joins.values())}, schema=JOINED)


def joined(edges: pa.Table, joins: Joins) -> pa.Table:
    """Join the products of each user; the first edge of each is returned."""
    if not edges.num_rows:
        return edges
    users = edges["user_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    named = edges["product"].combine_chunks().dictionary_encode()
    order = np.argsort(users, kind="stable")
    users, products = users[order], named.indices.to_numpy()[order]
    same = users[1:] == users[:-1]
    names = named.dictionary.to_pylist()
    pairs = np.unique(products[:-1][same].astype(np.int64) * len(names) + products[1:][same])
    join(joins, ((names[pair // len(names)], names[pair % len(names)]) for pair in pairs.tolist()))
    return edges.take(order[np.concatenate([[True], ~same])])


def join(joins: Joins, pairs: Iterable[tuple[str, str]]) -> None:
    """The products of each pair are in one bundle."""
    for one, other in pairs:
        one, other = least(joins, one), least(joins, other)
        if one != other:
            joins[max(one, other)] = min(one, other)


def least(joins: Joins, product: str) -> str:
    """The least product of a bundle."""
    while product in joins:
        above = joins[product]
        joins[product] = joins.get(above, above)
        product = joins[product]
    return product
