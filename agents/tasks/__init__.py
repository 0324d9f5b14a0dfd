"""A stream task: from a chunk of a stream's lines to a pane's result.

    files
     │  agents.inputs           whole lines, with the position that each source has after them
     ▼
    Chunk
     │  feeding                 a thread reads; at most so many chunks wait for the stream task
     │  streams                 under a backlog they are extracted on another core before their turn
     ▼
    Stream task.feed                   the stream task's own thread: one command at a time
     │  elf.job.worker          which rows are a flow's, in which panes, and which are late
     │    streams, engine       lines to typed rows, event time first (times): the format's SQL
     │    engine, mapping       rows to partial aggregates: the fragment's map, a user's function before it
     │    elf.cbt               partial aggregates of open panes, in a buffer tree
     ▼
    Outcome                     panes that the watermark has passed are sealed
     │  sinks                   lines to the archive (archive, partitions), or to the reject file
     │  checkpoints             one transaction: the checkpoint, positions, snapshots of the sealed panes
     ▼
    Worked, to the node         only what is durable is told
     │  elf.job.rollup          up the tree: snapshots merge, and the root commits the pane
     ▼
    agents.committing           panes to windows, and the final fragment to a window's result

Beside it: looks at rows as they come (``row_samples``), the work of another agent run again (``running``),
and what a finite input is, told from samples of its lines (``samples``).
"""
