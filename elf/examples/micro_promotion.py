"""Micro-promotion (ELF paper, Figures 1 and 7): the products that were clicked most in the last 300 s, and a
discount on them at every agent that sells them.

    elf demo --app micro-promotion
    elf submit elf/examples/micro_promotion.py --set every=5
    elf query micro_promotion '{"since": 0}'

A synchronous batch. Every 300 s the master multicasts that the batch is over. Each agent flushes its buffer
tree, empties it, and sends the groups to its parent, which merges what its children send and sends that on;
so all agents begin the next batch together. The master has the top products and multicasts them back: an
agent that has sold one of them puts the discount on its page (here: prints it).

Calls of the paper: Subscribe, OnTimer, Multicast and OnMulticast (the end of a batch; the top products),
SendTo and OnRecv (made by ``Rounds``), Deliver; insert, flush and empty of the buffer tree.

No click is lost or counted twice, whoever crashes: what an agent has counted, sold and given is in its
``state``, and what comes too late for its batch, since somebody was away, is in the next. A batch says which
lines it has read of each agent (``covers``: first and last id, and how many), so that anyone can count again.

To change it: ``store``, ``top`` and ``every`` with ``--set``; what is counted, in the query of ``start``;
what a discount is, in ``on_multicast``.
"""

from typing import Any

from elf.job import Rounds, all_lines, lines_of


class MicroPromotion(Rounds):
    """The most clicked products of each batch.

    Attributes:
        every (float): seconds of a batch.
        top (int): products that get a discount.
        store (str): the store whose clicks count.
        keep_late (bool): clicks that are too late for their batch are in the next one.
        kept (int): batches that the master remembers.

    A query is ``{"since": n}`` or None. The reply is a list with a dict for each batch after the n-th:
    ``batch`` (its number), ``agents`` (how many took part), ``top`` (products), ``clicks`` (by product),
    ``gave`` (discounts by product) and ``covers`` (``Lines``).

    Example:
        >>> import pyarrow as pa
        >>> master, below = two_agents(MicroPromotion)
        >>> lines = {"lines": [2], "first": [1], "last": [2]}
        >>> below.insert(pa.table({"product": ["Doom"], "clicks": [3], **lines}))
        >>> master.on_timer()
        discount on Doom
        >>> (batch,) = master.deliver(b"", {"since": 0})
        >>> batch["top"], batch["clicks"], batch["covers"]
        (['Doom'], {'Doom': 3}, {'web-2:7071': [1, 2, 2]})
    """

    every = 300.0  # seconds of a batch
    top = 3
    store = "video_games"
    keep_late = True
    kept = 100  # batches that the master remembers

    def start(self) -> None:
        self.subscribe(
            "SELECT product, SUM(clicks_count) AS clicks, COUNT(*) AS lines, "
            "MIN(id) AS first, MAX(id) AS last FROM clicks "
            f"WHERE store = '{self.store}' AND product IS NOT NULL GROUP BY product"
        )
        self.state.setdefault("sold", {})  # the products that this agent sells
        self.state.setdefault("gave", {})  # discounts that it has given since the last batch
        self.state.setdefault("batches", [])  # at the master

    def on_timer(self) -> None:
        if self.is_root:
            self.begin("update")

    def contribute(self, message: Any) -> dict[str, Any]:
        paos = self.flush()
        self.empty()
        self.state["sold"].update(dict.fromkeys(paos["product"].to_pylist(), True))
        gave, self.state["gave"] = self.state["gave"], {}
        return {"paos": paos, "covers": lines_of(self.me, paos, "lines"), "gave": gave}

    def combine(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        gave = {p: one["gave"].get(p, 0) + other["gave"].get(p, 0) for p in {*one["gave"], *other["gave"]}}
        covers = all_lines(one["covers"], other["covers"])
        return {"paos": self.merge(one["paos"], other["paos"]), "covers": covers, "gave": gave}

    def finish(self, message: Any, total: dict[str, Any], agents: int) -> None:
        best = total["paos"].sort_by([("clicks", "descending"), ("product", "ascending")]).to_pylist()
        top = [row["product"] for row in best[: self.top]]
        clicks = {row["product"]: row["clicks"] for row in best}
        batch = {"batch": self.round, "agents": agents, "top": top, "clicks": clicks, "gave": total["gave"]}
        self.state["batches"] = [*self.state["batches"], {**batch, "covers": total["covers"]}][-self.kept :]
        self.multicast({"top": top})

    def on_multicast(self, app: bytes, message: Any) -> None:
        if "top" not in message:
            super().on_multicast(app, message)
            return
        for product in message["top"]:
            if product in self.state["sold"]:
                print(f"discount on {product}")
                self.state["gave"][product] = 1

    def deliver(self, app: bytes, message: Any) -> list[dict[str, Any]]:
        """Other jobs, and people, may ask for the batches after a number."""
        asked = message.get("since") if isinstance(message, dict) else None
        since = asked if isinstance(asked, int) else 0
        return [batch for batch in self.state["batches"] if batch["batch"] > since]
