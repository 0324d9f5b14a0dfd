"""A node: all that one agent decides, as one pure state machine (``node``).

    driver ──event──▶ Node.handle ──▶ the part that it is for ──steps──▶ Node._settle ──effects──▶ driver

    keeping     the catalog log: followed, kept; ``membership`` in ``elf.job.catalog``
    hosting     the Raft groups of job groups: bootstrapped, led, ended; ``staffing``: who is in a group
    groups      all Raft groups, between ``overlay.raft`` and the disk
    working     the worker side: sender, trees, ``replicas``, broadcasts, clocks
    requests    what other nodes ask of this one
    leaving     how the agent goes; ``witness``: who comes and goes, and what the agent waits for

The parts are built in this order, each from those before it, and call only those: ``Context`` (who we are,
the log, the overlay) ─▶ the Raft groups ─▶ ``Catalog`` ─▶ ``JobGroups`` ─▶ ``Router`` ─▶ ``Hosting`` ─▶
``Commits`` ─▶ the worker ─▶ whoever asks. What goes the other way is a step, which ``settle`` hands
to whom it is for.

**A commit** enters ``Hosting`` once, as a record, and nothing is said of it before it is durable:

    root, master ─▶ Commits.wanted ─▶ Draft ─▶ (a thread) ─▶ Commits.drafted
      ─▶ Housing.commit ─▶ GroupDesk.propose ─▶ Persist ─▶ (fsync) ─▶ to the other members
      ─▶ (majority) ─▶ JobGroupMachine.apply ─▶ Apply ─▶ (the store) ─▶ Commits.applied ─▶ root, master

What groups have to say is taken, when all else is settled, by ``GroupDesk.take_outputs``. The way of an ALTER
is drawn in ``elf.job.group``.
"""
