"""A stream's worker on one agent: from the lines of a stream to sealed panes, and the checkpoint.

One ``stream.StreamWorker`` runs on the stream task of each stream, with a ``flowstate.FlowState`` for each
flow. A chunk of lines is parsed once for all flows; then for each flow:

    chunk ─▶ ``fitting``: columns in the flow's types ─▶ ``assigning``: each row's pane, or late ─▶ map
          ─▶ ``openpanes``: groups of open panes, in one buffer tree ─▶ seal ─▶ Sealed, with the checkpoint

- ``assigning`` decides lateness by the file's own earlier rows, so a replay decides the same.
- ``counted`` makes windows of N rows of one source; they enter the tree as groups when they are full.
- Nothing about a sealed pane leaves the agent before the checkpoint with it is durable.
- ``sources`` has how far each source was read, and the watermark.
- ``turns`` says, where flows promise different things, which of them maps the rows next that it has
  ``postponed``.
- ``taps`` gives jobs in Python what each chunk comes to, outside the panes.
"""
