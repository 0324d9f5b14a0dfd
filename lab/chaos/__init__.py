"""Whole fleets on virtual time, with scheduled faults and an oracle: ``elf sim chaos``.

    seed ─``drawing``─▶ ``schedule``: faults and requests, as values ─▶ ``story``: one run
                             ▲                                             │ ``world``, ``agent``: the fleet
                             └── ``shrink``: fewer faults                  ▼ ``ledger``: checks each commit
                                                                        ``judge``: what must be true at last

The ``ledger`` keeps ``books`` of what is sealed and committed, with its ``windows`` and its ``replicas``.
``people`` ask of a story's fleet what the schedule says, ``faults`` befall it, and ``tables`` are read.

The whole protocol is real (nodes, overlay, groups, workers, stores, merges, commits). Clock, network and disk
are simulated (``ports``, ``disk``), and the map is a few lines of Python (``engine``). Where agents read
files (``files``, ``filetask``) their ``Tail`` and ``StreamTask`` are real too, and so are the files, except
the times of their last change; ``fates`` knows what has become of each row. ``reference`` computes what a
window must contain.
"""
