"""The catalog log: which members each stream expects, which flows and jobs there are.

The log is a Raft group of its own (``voters``); each agent follows it (``membership``) and holds a prefix
(``log.CatalogLog``).

    an agent ── proposal ──▶ a voter ── Raft record ──▶ ``admission``: at most one entry, or a refusal
    each agent ◀── entries, down the streams' trees, and on asking every ``follow_ms`` ──┘

- ``admission``: what a proposal becomes. It is a function of log and proposal, so all voters agree.
- ``flowgroups`` and ``bootstrap``: which job group a flow is in, and who bootstraps those of key ranges.
- ``readers``: what the log refuses because jobs read jobs.
- ``elf.security.roster``: whose keys hold, as entries say.
- ``compaction``: which entries of past jobs become tombstones.
"""
