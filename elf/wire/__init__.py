"""What a client and an agent say to each other, and how any message becomes frames.

``base``: what all messages have in common. ``clients``: those of a client and its agent; the others are
``elf.job.messages``. ``heard``: which results a reader has. ``frames``: the codec, for messages of whatever
types it is given.

A client loads this and none of the protocol of jobs: it must never import more than ``elf.errors`` of ours.
"""
