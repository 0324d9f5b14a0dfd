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

Panes go through six types on this way:

    Sealed          what an agent has sealed, as stored on its disk. It has no member number: only the catalog
                    log has that, and the stream task does not know it.
    Slice           a message. Its contribution set is bytes. (``Excerpt``: groups are left out; ``RunSlice``:
                    another agent has run it; ``UnitSlice``: a region's head has merged panes, which waited at
                    its ``Border``. These are types, so that an elf without them refuses them.)
    Piece           the same in memory: its contribution set is an integer. Pieces are clipped and joined, and
                    their tables are not opened.
    CommitPanes     a request: the pieces of the same panes, and the revision that they make.
    PaneCommit      the result: merged tables, durable and final. The row of the store is also the record of a
                    replicated job group; until the group has it, it is in ``Drafted``. (``PaneRow``: the
                    message that brings it to a reader, with its place in the reader's request.)
    Segment         the same without tables, in memory for as long as a revision may come; neighbours that
                    are alike are joined.

What is not covered comes again: missing members are asked (``answer``), and an agent offers what was not
answered for a while. What is covered is refused. So each row is in one commit.
"""
