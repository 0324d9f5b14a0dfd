"""``elf demo``: a fleet of eight on this machine, a live job, and its check offline.

``fleet`` lays out, starts and watches the processes, ``play`` tells the story. ``elf demo --app``: ``apps``
tells those of the paper's applications, ``batch`` checks them.
"""
