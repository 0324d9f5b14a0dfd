"""The archive: the raw lines of streams as Parquet files, where Spark and whoever else likes can read them.

    rolls in the data folder (agents.tasks.archive)
     │  shelf                   ships a roll: files, then their entry in the manifest
     ▼
    TARGET/stream=clicks
     ├─ date=…/hour=…/agent=…   Parquet files (partitions, pieces, footers)
     └─ _manifest
         ├─ agent=…             what files of an agent there are (manifest)
         ├─ layout              which of all these a recluster has replaced, and by what (layout)
         └─ holds               reclusters that are under way
     │  contents                which files a reader is to read, and which of them a query can need
     ▼
    spark_backend.offline, and the agents themselves

An agent's files and its manifest are written by that agent alone (``Shelf``), on one thread: it ships, and
beside that it keeps house (``upkeep``): the oldest files go when there is more than may be kept
(``retention``), the small files of an hour that is over are made one (``footers``), and what nobody begins to
read any more is deleted after a while.

Rules: a file is there, whole and durable, before a manifest names it, and stays for a while after the last
one that names it is replaced. Each shipped row is in exactly one file that readers are shown, or was counted
as gone. Nothing is deleted that was not shipped.
"""
