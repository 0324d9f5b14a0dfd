"""Whole fleets on virtual time, with faults by schedule and an oracle: ``elf sim chaos``.

``world`` and ``agent`` are the fleet: everything of the protocol is real (nodes, overlay, groups, workers,
stores, merges, commits), but clock, network and disk, and the map, a few lines of Python (``engine``).
"""
