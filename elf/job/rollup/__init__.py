"""Rolling up: how a snapshot becomes a commit.

    on an agent     a stream task seals panes ──▶ Sealed ── durable with the checkpoint; its name is Retained
                                             │       until all of its panes have their answer
    up the tree     of our own, and of       ▼
                    children as Slices ──▶ Piece ── in the Combiner's Pile ── Combine: many into one ─▶ Slice
                                                                                                          │
    straight to the root: what it asks for again, parts of late rows, copies of the dead (``reissued``)   │
                                                                                                          ▼
    at the root     commits at readers ◀── PaneRow              Covered: held ── in its Pile ◀────────── Piece
                                              │                    │ Deciding: the panes are due
                                              │                    ▼
                    Covered: committed ◀── PaneCommit ◀──────── CommitPanes ── Covered: proposed
                    Segment in the History    │   on a thread: merged, on top of the revision before it
                                              ▼
    at the agent    Committed, down the tree: the snapshot is in it, and forgotten

Six types have panes on this way, since each is another thing:

    Sealed          what an agent has sealed, as it lies on its disk. It has no member number: that is the
                    catalog log's, and the stream task does not know it.
    Slice           a message. Its contribution set is bytes. (``Excerpt``, ``RunSlice``: what is left out of
                    it, or that another has run it, is in the type: who does not know it refuses it.)
    Piece           the same in memory: its contribution set is an integer, it is clipped and laid beside
                    others, and nobody opens its tables.
    CommitPanes     what is to be done: the pieces of the same panes, and the revision that they make.
    PaneCommit      what was done: merged tables, durable, for good. The row of the store is the record of a
                    replicated job group. ``Drafted`` has it until its group has it. (``PaneRow``: the message
                    that takes it to a reader, with its place in what that has asked for.)
    Segment         what is known of it without its tables, in memory for as long as a revision may come;
                    neighbours that are alike are one.

What is not covered comes again: who is missing is asked (``answer``), and an agent offers what has had no
answer for a while. What is covered is refused. So each row is in one commit.
"""
