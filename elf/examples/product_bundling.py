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
looks survive. What agents bring to a look goes ``at_once``: they keep their edges, and bring them again.

To change it: ``window``, ``every``, ``users_max``, and what an edge is (``wanted``, ``store``, ``user``) with
``--set``.
"""

import json
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elf.aggregates import split_by_range
from elf.job import Lines, Rounds, lines_of

JOINED = pa.schema([("one", pa.string()), ("other", pa.string())])
"""Products that are joined: each but one of a bundle, beside that one."""
NONE = JOINED.empty_table()
EDGES_BYTES_MAX = 7 << 19  # of an epoch's edges: with what is beside them they fit a message


class ProductBundling(Rounds):
    """Products that the same users like and buy.

    Attributes:
        at_once (bool): looks wait for no checkpoints (``Rounds``).
        timer_at_master (bool): the master begins each look.
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

    at_once = True
    timer_at_master = True
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
        self.joins = NONE
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
        self.joined = NONE
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
            both = pa.concat_tables([self.joined, total["joins"]])
            _, self.joined = joined(total["edges"].slice(0, 0), both)
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
        for product, first in zip(*self.joined.to_pydict().values(), strict=True):
            members.setdefault(first, []).append(product)
        bundles = sorted(sorted([first, *others]) for first, others in members.items())
        look: dict[str, Any] = {"look": self.round, "agents": agents, "epochs": self.epochs}
        look |= {"users": self.users, "bundles": bundles, "since": self.since, "covers": self.covered}
        look |= {"ms": 1000 * (self.now - self.began)}
        packed = zlib.compress(json.dumps(look).encode(), 1)  # once, and not with each state of the master
        self.state["looks"] = [*self.state["looks"], packed][-self.kept :]

    def looks(self, last: int | None = None) -> list[dict[str, Any]]:
        """The last of those that are kept, or all of them, in order."""
        packed = self.state["looks"]
        return [json.loads(zlib.decompress(one)) for one in packed[-last if last else None :]]

    # -- every agent -----------------------------------------------------------------------------------------

    def contribute(self, message: Any) -> dict[str, Any]:
        part, covers = message["part"], {}
        if part == 0:
            edges = self.flush("edges", since=message["since"], merged=False).select(["user_id", "product"])
            kept, self.joins = joined(edges, NONE)
            self.parts = list(split_by_range(kept, ["user_id"], message["parts"]))
            self.parts_since = message["since"]
            covers = lines_of(self.me, self.flush("covers", merged=False), "lines")
        if (self.parts_since, len(self.parts)) != (message["since"], message["parts"]):
            return {"lost": True, "edges": None, "users": 0, "joins": NONE, "covers": {}, "joined": False}
        edges, self.parts[part] = self.parts[part], self.parts[part].slice(0, 0)
        users, joins = edges.num_rows, self.joins if part == 0 else NONE
        found = {"lost": False, "edges": edges, "users": users, "joins": joins, "covers": covers}
        return {**found, "joined": True}  # one edge a user already

    def combine(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        both = {"lost": one["lost"] or other["lost"], "users": one["users"] + other["users"]}
        both |= {"covers": one["covers"] | other["covers"], "joined": False}
        both["joins"] = pa.concat_tables([one["joins"], other["joins"]])
        edges = [one["edges"], other["edges"]]
        many = any(some is None for some in edges) or both["users"] > 16 * self.users_max
        both["edges"] = None if many else pa.concat_tables(edges, promote_options="permissive")
        return both

    def gathered(self, value: dict[str, Any]) -> dict[str, Any]:
        """One edge a user; none, if that are too many for a message."""
        if value["edges"] is None:
            return value
        edges, joins = value["edges"], value["joins"]
        if not value["joined"]:
            edges, joins = joined(edges, joins)
        users = edges.num_rows
        kept = edges if users <= 2 * self.users_max and edges.nbytes <= EDGES_BYTES_MAX else None
        return {**value, "edges": kept, "users": users, "joins": joins, "joined": True}

    def deliver(self, app: bytes, message: Any) -> Any:
        """Other jobs may ask what goes with a product, and for the looks after a number: ``{"since": n}``."""
        if isinstance(message, str):
            for look in self.looks(1):
                bundle = next((bundle for bundle in look["bundles"] if message in bundle), [message])
                return {"look": look["look"], "bundle": bundle}
            return {"look": 0, "bundle": [message]}
        asked = message.get("since") if isinstance(message, dict) else None
        since = asked if isinstance(asked, int) else 0
        return [look for look in self.looks() if look["look"] > since]


# -- connected components ------------------------------------------------------------------------------------


def joined(edges: pa.Table, joins: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Join the products of each user: one edge of each, and all joins, each with one product of its bundle.
    The edges are of these, too: the more is joined, the fewer products there are to tell apart."""
    products = edges["product"].cast(pa.string())
    texts = pa.chunked_array([*joins["one"].chunks, *joins["other"].chunks, *products.chunks], pa.string())
    named = texts.combine_chunks().dictionary_encode()
    one, other, of_edges = np.split(named.indices.to_numpy(), [joins.num_rows, 2 * joins.num_rows])

    known = edges["user_id"].combine_chunks().dictionary_encode()
    users = known.indices.to_numpy()
    likes = np.zeros(len(known.dictionary), np.int64)
    likes[users] = of_edges  # one of those of each user, whichever
    one, other = np.concatenate([one, likes[users]]), np.concatenate([other, of_edges])

    least = least_of(one, other, len(named.dictionary))
    apart = np.flatnonzero(least != np.arange(len(least)))
    of_users, of_apart = (named.dictionary.take(pa.array(least[some])) for some in (likes, apart))
    kept = pa.table([known.dictionary, of_users], names=["user_id", "product"])
    return kept, pa.table([named.dictionary.take(pa.array(apart)), of_apart], schema=JOINED)


def least_of(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The least node of each node's component, where these pairs are joined."""
    least, rounds = np.arange(count), 0
    while len(one):
        differ = one != other
        one, other = one[differ], other[differ]
        low, high = np.minimum(one, other), np.maximum(one, other)
        if rounds < 2:
            least[high] = low  # one of several: that takes a tenth of the time, and leaves fewer pairs
        else:
            np.minimum.at(least, high, low)
        rounds += 1
        while (least[least] != least).any():
            least = least[least]
        one, other = least[one], least[other]
    return least
