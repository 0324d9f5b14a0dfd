"""Sale prediction (ELF paper, Figure 1 and section 2.4): how a product such as Angry Birds will do, out of
what two other jobs know.

    elf demo --app sale-prediction
    elf submit elf/examples/micro_promotion.py
    elf submit elf/examples/product_bundling.py
    elf submit elf/examples/sale_prediction.py --set product="Angry Birds Season"
    elf query sale_prediction

A job without rows of its own. Its master asks the master of product-bundling what is bought with the product,
and the master of micro-promotion for its last batches; a line through the clicks on the bundle, batch by
batch (least squares), says how many the next batch will have, and the top products whether the bundle is
popular now.

Calls of the paper: OnTimer, Route and Deliver (made by ``query``, which is both, with a timeout and errors).

To change it: ``product``, ``batches`` and the names of the other two jobs with ``--set``; the forecast, in
``forecast``.
"""

from typing import Any

import numpy as np

from elf.job import Job, QueryFailed


class SalePrediction(Job):
    """The clicks that a product's bundle will have in the next batch.

    Attributes:
        every (float): seconds between two predictions.
        product (str): the product.
        batches (int): batches that the line goes through, at most; two at least.
        promotion (str): the job that is asked for batches.
        bundling (str): the job that is asked for bundles.
        kept (int): predictions that the master remembers.

    A query is ``{"since": n}`` or None. The reply is a list with a dict for each prediction after the n-th
    batch: ``look``, ``bundle`` (products), ``batches`` (their numbers), ``history`` (clicks in each),
    ``forecast`` (clicks) and ``popular`` (products of the bundle that are top products now).

    Example:
        >>> class Promotion(Job):
        ...     def deliver(self, app, message):
        ...         return [{"batch": n, "clicks": {"Doom": 2 * n}, "top": ["Doom"]} for n in (1, 2)]
        >>> class Bundling(Job):
        ...     def deliver(self, app, message):
        ...         return {"look": 1, "bundle": [message]}
        >>> promotion, _ = two_agents(Promotion, name="micro_promotion")
        >>> bundling, _ = two_agents(Bundling, name="product_bundling")
        >>> master, _ = two_agents(SalePrediction, others=(promotion, bundling))
        >>> master.product = "Doom"
        >>> master.on_timer()
        >>> (prediction,) = master.deliver(b"", None)
        >>> prediction["history"], round(prediction["forecast"]), prediction["popular"]
        ([2, 4], 6, ['Doom'])
    """

    every = 300.0
    product = "Angry Birds Season"
    batches = 6  # that the line goes through, at most
    promotion = "micro_promotion"
    bundling = "product_bundling"
    kept = 100

    def start(self) -> None:
        self.state.setdefault("predictions", [])
        self.state.setdefault("last", 0)  # the batch of the last one

    def on_timer(self) -> None:
        if not self.is_root:
            return
        try:
            batches: Any = self.query(self.promotion, {"since": 0})
            if len(batches) < 2 or batches[-1]["batch"] == self.state["last"]:
                return
            found: Any = self.query(self.bundling, self.product)
        except QueryFailed as failed:
            print(f"no prediction: {failed}")
            return
        bundle, batches = found["bundle"], batches[-self.batches :]
        history = [sum(batch["clicks"].get(product, 0) for product in bundle) for batch in batches]
        self.state["last"] = batches[-1]["batch"]
        prediction = {
            "look": found["look"],
            "bundle": bundle,
            "batches": [batch["batch"] for batch in batches],
            "history": history,
            "forecast": forecast(history),
            "popular": [product for product in bundle if product in batches[-1]["top"]],
        }
        self.state["predictions"] = [*self.state["predictions"], prediction][-self.kept :]

    def deliver(self, app: bytes, message: Any) -> list[dict[str, Any]]:
        """The predictions after a batch."""
        asked = message.get("since") if isinstance(message, dict) else None
        since = asked if isinstance(asked, int) else 0
        return [one for one in self.state["predictions"] if one["batches"][-1] > since]


def forecast(history: list[int]) -> float:
    """The next value of a line through these (least squares), at least 0.

    Args:
        history (list[int]): clicks, a number for each batch; two at least.

    Returns:
        float: clicks.

    Raises:
        Nothing.

    Example:
        >>> round(forecast([1, 2, 3]), 6)
        4.0
    """
    slope, level = np.polyfit(np.arange(len(history)), history, 1)
    return max(0.0, float(level + slope * len(history)))
