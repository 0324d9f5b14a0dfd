"""Product bundling (ELF paper, Figure 1 and section 2.3): products that the same users like and buy, as the
connected components of the graph of users and products, over a sliding window.

    elf demo --app product-bundling
    elf submit elf/examples/product_bundling.py --set window=60
    elf query product_bundling '"Angry Birds Season"'

A like and a buy are an edge between a user and a product. Every ``every`` seconds the master looks at the
edges of the last ``window`` seconds: agents flush their buffer trees and empty them of what is older, only.
Then comes a cycle: the master multicasts the result of an epoch, agents take it as the input of the next one.
Every vertex begins with its own name as its label; in each epoch an agent offers, for both ends of its edges,
the lesser of their labels, where that is news; the least offers of all agents are the next epoch's labels.
When none is left, vertices with one label are a component, and its products a bundle. A graph of diameter d
takes about d epochs.

Calls of the paper: Subscribe (twice: likes, buys), OnTimer, Multicast and OnMulticast (the epoch's result, to
be iterated), SendTo and OnRecv (made by ``Rounds``), Deliver; insert, flush and empty of the buffer tree.

A cycle that an agent was too late for is given up after three times ``every``, and one in which an agent's
process ended at once; the next one begins anew, and nothing is kept of it. Edges, which ids they cover, and
looks survive. An epoch's changes are one multicast of at most 1 MiB, some 15,000 users in a window.

To change it: ``window``, ``every`` and ``store`` with ``--set``; what an edge is, in the queries of
``start``.
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from elf.job import Rounds

EDGES = {"likes": "likes", "buys": "buys_count"}
Labels = dict[str, str]


class ProductBundling(Rounds):
    """Products that the same users like and buy.

    Attributes:
        every (float): seconds between two looks at the graph.
        window (float): seconds that an edge lives.
        store (str): the store whose likes and buys count.
        epochs_max (int): epochs after which a cycle ends.
        kept (int): looks that the master remembers.

    A query is the name of a product, and the reply ``{"look": n, "bundle": [products]}``. Or it is
    ``{"since": n}`` or None, and the reply a list with a dict for each look after the n-th: ``look``,
    ``agents``, ``epochs``, ``bundles`` (lists of products), ``since`` (seconds since the epoch), ``covers``
    (agent: first and last id) and ``ms``.

    Example:
        >>> master, below = two_agents(ProductBundling)
        >>> seen = [datetime(2025, 12, 31, 23, 59, 50)] * 2  # the clock says midnight
        >>> likes = {"user_id": ["ada"] * 2, "product": ["Doom", "Myst"], "seen": seen}
        >>> below.insert(pa.table({**likes, "first": [1, 2], "last": [1, 2]}), "likes")
        >>> master.on_timer()
        >>> master.deliver(b"", "Doom")["bundle"]
        ['Doom', 'Myst']
    """

    every = 5.0  # seconds between two looks at the graph
    window = 300.0  # seconds that an edge lives
    store = "video_games"
    epochs_max = 50
    kept = 100  # looks that the master remembers

    def start(self) -> None:
        for name, column in EDGES.items():
            self.subscribe(
                "SELECT user.id AS user_id, product, MAX(created_at) AS seen, "
                f"MIN(id) AS first, MAX(id) AS last FROM clicks WHERE {column} > 0 "
                f"AND store = '{self.store}' AND product IS NOT NULL "
                "AND user.id IS NOT NULL GROUP BY user.id, product",
                name=name,
            )
        self.state.setdefault("covers", {})  # of this agent: the ids of the first and the last edge
        self.state.setdefault("looks", [])  # at the master
        self.edges: list[tuple[str, str]] | None = None  # of a cycle, as all that follows
        self.labels: Labels = {}
        self.busy_until = 0.0  # a cycle that is not through by then is given up

    # -- the master: one epoch after the other ---------------------------------------------------------------

    def on_timer(self) -> None:
        if self.is_root and self.now >= self.busy_until:
            self.first, self.began = self.round + 1, self.now
            self.busy_until = self.now + 3 * self.every
            self.begin({"since": self.now - self.window, "labels": {}})

    def finish(self, message: Any, total: dict[str, Any], agents: int) -> None:
        """All offers of an epoch are in."""
        if not total["whole"] or self.edges is None:
            self.busy_until = 0.0
            return
        if message["since"] is not None:
            self.since, self.covered = message["since"], total["covers"]
        epochs = self.round - self.first + 1
        if total["offers"] and epochs < self.epochs_max:
            self.begin({"since": None, "labels": total["offers"]})
            return
        self.busy_until = 0.0
        components: dict[str, list[str]] = {}
        for vertex, label in self.labels.items():
            if vertex.startswith("p:"):
                components.setdefault(label, []).append(vertex[2:])
        bundles = sorted(sorted(products) for products in components.values() if len(products) > 1)
        look: dict[str, Any] = {"look": self.round, "agents": agents, "epochs": epochs, "bundles": bundles}
        look |= {"since": self.since, "covers": self.covered, "ms": 1000 * (self.now - self.began)}
        self.state["looks"] = [*self.state["looks"], look][-self.kept :]

    # -- every agent -----------------------------------------------------------------------------------------

    def contribute(self, message: Any) -> dict[str, Any]:
        if message["since"] is not None:
            self.labels = {}
            self.edges = self.look(datetime.fromtimestamp(message["since"], UTC))
        self.labels.update(message["labels"])
        offers: Labels = {}
        for edge in self.edges or ():
            least = min(self.labels.get(end, end) for end in edge)
            for end in edge:
                if end not in self.labels or least < self.labels[end]:
                    offers[end] = min(least, offers.get(end, least))
        return {"offers": offers, "covers": self.state["covers"], "whole": self.edges is not None}

    def look(self, since: datetime) -> list[tuple[str, str]]:
        """The edges since then; older ones are forgotten."""
        found: set[tuple[str, str]] = set()
        for name in EDGES:
            paos = self.flush(name)
            if not paos.num_rows:
                continue
            first, last = pc.min(paos["first"]).as_py(), pc.max(paos["last"]).as_py()
            a, b = self.state["covers"].get(self.me, (first, last))
            self.state["covers"] = {self.me: (min(a, first), max(b, last))}
            seen = paos["seen"].cast(pa.timestamp("us"))
            paos = paos.filter(pc.greater_equal(seen, pa.scalar(since.replace(tzinfo=None), seen.type)))
            self.empty(name)
            self.insert(paos, name)
            rows = zip(paos["user_id"].to_pylist(), paos["product"].to_pylist(), strict=True)
            found.update((f"u:{user}", f"p:{product}") for user, product in rows)
        return sorted(found)

    def combine(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        offers = dict(one["offers"])
        for vertex, label in other["offers"].items():
            offers[vertex] = min(label, offers.get(vertex, label))
        whole = one["whole"] and other["whole"]
        return {"offers": offers, "covers": one["covers"] | other["covers"], "whole": whole}

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
