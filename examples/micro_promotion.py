"""Micro-promotion, after Figure 7 of the ELF paper: batches of clicks in step on all agents, the top products
to the master, and back from it a discount to every agent that has the product.

    elf submit examples/micro_promotion.py
"""

from elf.job import Job

TOP = 3


class MicroPromotion(Job):
    every = 5.0  # seconds of a batch

    def start(self):
        self.subscribe("SELECT product, SUM(clicks_count) AS clicks FROM clicks GROUP BY product")
        self.batch = None  # what the master has of the batch that just ended
        self.mine = set()  # products that this agent sells

    def on_timer(self):
        if self.is_root:
            best = self.merge(self.batch).sort_by([("clicks", "descending"), ("product", "ascending")])
            self.batch = None
            self.multicast({"topk": best["product"][:TOP].to_pylist()})
            self.multicast({"update": self.now})  # all empty together: the next batch begins

    def on_multicast(self, app, message):
        if "update" in message:
            paos = self.flush()
            self.empty()
            self.mine |= set(paos["product"].to_pylist())
            self.roll_up(paos)
        else:
            for product in self.mine.intersection(message["topk"]):
                print(f"discount on {product}")

    def on_recv(self, node, paos):
        self.roll_up(paos)

    def roll_up(self, paos):
        if self.is_root:
            self.batch = self.merge(self.batch, paos)
        elif paos.num_rows:
            self.send_to(self.parent, paos)

    def deliver(self, app, message):
        """Other jobs may ask for the clicks of the batch so far."""
        return self.merge(self.batch).to_pylist()
