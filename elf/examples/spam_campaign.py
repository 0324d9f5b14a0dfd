"""The spam campaign (ELF paper, section 4.1 and Figure 10b): who posts about sales most often, and then a
closer look, with another function, while the job runs.

    elf demo --app spam
    elf submit elf/examples/spam_campaign.py --set every=5
    elf query spam_campaign '{"since": 0}'
    elf submit elf/examples/spam_campaign.py --replace --set by=user.location --set every=5
    elf submit elf/examples/spam_campaign.py --replace --set every=5 \
        --set where="text LIKE '%sales%' AND user.location = 'Ontario' AND user.followers_count < 100"

Batches as in ``micro_promotion``: the master multicasts, agents flush and empty, groups roll up. What is
filtered and what it is grouped by are settings of the class, so the same file with others is the new
function: ``--replace`` makes it the next generation on every agent, which starts with the next line that the
agent reads.

Calls of the paper: Subscribe, OnTimer, Multicast and OnMulticast (the end of a batch), SendTo and OnRecv
(made by ``Rounds``), Deliver; flush and empty of the buffer tree.

To change it: ``where``, ``by``, ``top`` and ``every`` with ``--set``.
"""

from typing import Any

from elf.job import Rounds, all_lines, lines_of


class SpamCampaign(Rounds):
    """Who posts most often, of the posts that a condition is true for.

    Attributes:
        every (float): seconds of a batch.
        top (int): how many a batch names.
        by (str): the column that posts are counted by.
        where (str): the condition, in ELF-QL.
        keep_late (bool): posts that are too late for their batch are in the next one.
        kept (int): batches that the master remembers.

    A query is ``{"since": n}`` or None. The reply is a list with a dict for each batch after the n-th:
    ``batch``, ``agents`` (how many took part), ``by``, ``where``, ``top`` (pairs of who and posts) and
    ``covers`` (``Lines``).

    Example:
        >>> import pyarrow as pa
        >>> master, below = two_agents(SpamCampaign)
        >>> below.insert(pa.table({"who": ["eve"], "posts": [7], "first": [1], "last": [9]}))
        >>> master.on_timer()
        >>> master.deliver(b"", None)[0]["top"]
        [['eve', 7]]
    """

    every = 30.0  # seconds of a batch
    top = 5
    by = "user.name"
    where = "text LIKE '%sales%'"
    keep_late = True
    kept = 100  # batches that the master remembers

    def start(self) -> None:
        self.subscribe(
            f"SELECT {self.by} AS who, COUNT(*) AS posts, MIN(id) AS first, MAX(id) AS last "
            f"FROM posts WHERE ({self.where}) AND {self.by} IS NOT NULL GROUP BY {self.by}"
        )
        self.state.setdefault("batches", [])  # at the master

    def on_timer(self) -> None:
        if self.is_root:
            self.begin()

    def contribute(self, message: Any) -> dict[str, Any]:
        paos = self.flush()
        self.empty()
        return {"paos": paos, "covers": lines_of(self.me, paos, "posts")}

    def combine(self, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        covers = all_lines(one["covers"], other["covers"])
        return {"paos": self.merge(one["paos"], other["paos"]), "covers": covers}

    def finish(self, message: Any, total: dict[str, Any], agents: int) -> None:
        best = total["paos"].sort_by([("posts", "descending"), ("who", "ascending")]).to_pylist()
        top = [[row["who"], row["posts"]] for row in best[: self.top]]
        batch = {"batch": self.round, "agents": agents, "by": self.by, "where": self.where, "top": top}
        self.state["batches"] = [*self.state["batches"], {**batch, "covers": total["covers"]}][-self.kept :]

    def deliver(self, app: bytes, message: Any) -> list[dict[str, Any]]:
        """Other jobs, and people, may ask for the batches after a number."""
        asked = message.get("since") if isinstance(message, dict) else None
        since = asked if isinstance(asked, int) else 0
        return [batch for batch in self.state["batches"] if batch["batch"] > since]
