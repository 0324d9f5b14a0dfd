"""Whole fleets on virtual time, with faults by schedule and an oracle: ``elf sim chaos``.

``world`` and ``agent`` are the fleet: everything of the protocol is real (nodes, overlay, groups, workers,
stores, merges, commits), but clock, network and disk, and the map, a few lines of Python (``engine``).
Where agents read files (``files``, ``filetask``) their ``Tail`` and ``StreamTask`` are real too, and so are
the files, but for the times of their last change; ``fates`` knows what has become of each row.
"""
