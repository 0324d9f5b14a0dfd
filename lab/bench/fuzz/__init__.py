"""``elf bench fuzz``: frames that no honest agent would send, to a fleet that works meanwhile.

``values`` makes well-typed values of any message, of nothing but its type. ``frames`` makes frames: random
bytes, well-typed random ones, and real ones that are damaged or changed. Who sends them is a ``member`` of a
fleet without keys (``target``: real nodes on virtual time, ``lab.chaos``), a ``reader`` or a ``stranger``
without a key; these two are at real agents with keys (``closed``). ``found`` is what came of it, ``bench``
tells it.
"""
