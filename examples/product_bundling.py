"""Product bundling, after section 2.3 of the ELF paper: products that the same users clicked on, as the
connected components of the graph of users and products. A cycle: the master multicasts an epoch's result, and
the agents take it as the next epoch's input, until nothing changes.

    elf submit examples/product_bundling.py

Every vertex begins with its own name as its label. In each epoch an agent offers, for both ends of each of
its edges, the lesser of their labels, where that is news; the least offers of all agents are the next epoch's
labels. So a graph of diameter d takes about d epochs.
"""

from elf.job import Job

EPOCHS_MAX = 50


class ProductBundling(Job):
    every = 5.0  # seconds between two looks at the graph; also, when an epoch is given up and begun again

    def start(self):
        self.subscribe(
            "SELECT user.id AS user_id, product, COUNT(*) AS clicks FROM clicks "
            "WHERE product IS NOT NULL AND user.id IS NOT NULL GROUP BY user.id, product"
        )
        self.labels, self.offers, self.waiting = {}, {}, set()
        self.epoch, self.edges, self.bundles = 0, [], []

    # -- the master: one epoch after the other --------------------------------------------------------------

    def on_timer(self):
        if self.is_root:  # a master that took over begins anew too
            self.first = self.epoch + 1
            self.begin({}, fresh=True)

    def begin(self, changes, fresh=False):
        self.multicast({"epoch": self.epoch + 1, "changes": changes, "fresh": fresh})

    def ended(self):
        """All offers of an epoch are in."""
        if self.offers and self.epoch - self.first < EPOCHS_MAX:
            self.begin(self.offers)
            return
        bundles = {}
        for vertex, label in self.labels.items():
            if vertex.startswith("p:"):
                bundles.setdefault(label, []).append(vertex[2:])
        self.bundles = sorted(sorted(products) for products in bundles.values() if len(products) > 1)
        print(f"{len(self.bundles)} bundles after {self.epoch - self.first + 1} epochs")

    # -- every agent ----------------------------------------------------------------------------------------

    def on_multicast(self, app, message):
        self.epoch, self.waiting = message["epoch"], set(self.children)
        if message["fresh"]:
            self.labels = {}
            rows = self.flush().to_pylist()
            self.edges = [(f"u:{row['user_id']}", f"p:{row['product']}") for row in rows]
        self.labels.update(message["changes"])
        self.offers = {}
        for edge in self.edges:
            least = min(self.labels.get(end, end) for end in edge)
            self.offer(dict.fromkeys(edge, least))
        self.up()

    def on_recv(self, node, message):
        if message["epoch"] == self.epoch:
            self.waiting.discard(node)
            self.offer(message["offers"])
            self.up()

    def offer(self, offers):
        """Keep the least offer for each vertex, if the vertex is new or the offer is less than its label."""
        for vertex, label in offers.items():
            if vertex not in self.labels or label < self.labels[vertex]:
                self.offers[vertex] = min(label, self.offers.get(vertex, label))

    def up(self):
        """When all below have sent theirs, send on what came together."""
        if not self.waiting:
            if self.is_root:
                self.ended()
            else:
                self.send_to(self.parent, {"epoch": self.epoch, "offers": self.offers})

    def deliver(self, app, message):
        """Other jobs may ask what goes with a product."""
        return [bundle for bundle in self.bundles if message is None or message in bundle]
