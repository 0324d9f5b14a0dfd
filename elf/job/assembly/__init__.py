"""Windows out of committed panes: each pane is merged a few times at most.

An ``Assembly`` (``windows``) is what a master keeps in memory of one job. It can be rebuilt from the stored
panes at any time, and does no I/O.

    committed panes ─▶ units (lengths by the job's plan of merges) ─▶ a maker for each kind ─▶ windows

- Tumbling windows are units; ``prefixes`` makes cumulative and landmark windows, each from the one before.
- ``sliding`` and ``twostacks`` make overlapping windows by two-stacks sliding aggregation.
- ``sessions`` stitches pieces of a key by their first and last event time.
- ``rows`` and ``numeric`` hold partial aggregates as numeric columns, which numpy merges for all keys at
  once.
"""
