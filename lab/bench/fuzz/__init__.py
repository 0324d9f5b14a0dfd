"""``elf bench fuzz``: frames that no honest agent would send, to a fleet that works meanwhile.

``values`` makes well-typed values of any message, of nothing but its type. ``frames`` makes frames: random
bytes, well-typed random ones, and real ones that are damaged or changed. ``target`` is a fleet of real nodes
on virtual time (``lab.chaos``) to which they are sent. ``bench`` counts.
"""
