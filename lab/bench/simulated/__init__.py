"""The figures of ``elf bench control`` for fleets that no machine has: ``elf sim control``.

Whole nodes on virtual time (``lab.chaos``), each of them a server of one core. What a step of an agent takes
is measured while it is run, as CPU time of the thread, and charged: the agent's next step begins when it is
over, and so does the way of all that it has sent. So the figures are link delay, service and waiting.

| what | is |
|---|---|
| overlay, groups, log, roots, masters, statements, windows | what agents run, measured as it runs |
| frames | encoded by the sender and decoded by the receiver, once a message as in an agent; measured |
| extract, map, final fragment | DuckDB's, prepared once for all agents: each is charged what that took |
| trees, seals, merges, drafts, SQLite in memory | what agents run, measured |
| sockets, hops between threads, the archive, syncs, sandboxes | not there: constants (``costs``) |
| Python's collector, HTTP, logging, reading of files | not there, not charged |

An agent's loop and its other threads take turns on its core when both have something to do. A sync is waited
for, by the thread that an agent has for it or, where its loop waits, by the agent. Agents share one heap
here, so their caches are colder than on machines of their own. A fleet comes together, and rests, without
charges; nothing is measured before it is ready.
"""
