"""The overlay as arrays: what a ring at rest looks like at sizes that no simulated protocol reaches.

``ring`` has the next hop of every node for every key; ``balance`` who roots how many trees; ``model``
measures both. The protocol itself runs in ``lab.overlay.simulator``. Never here: messages, time, or the
pictures.
"""
