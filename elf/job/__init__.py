"""Jobs: the protocol of roots, masters and workers, and ``Job``, the class of jobs that are written in
Python.

Everything here is pure: no socket, no disk, no clock, no thread. A node gets events (``events``) and messages
(``messages``), and returns effects (``effects``) that the driver performs. ``spec`` says what jobs, flows and
versions are. A row's way through the packages:

    worker      a stream task: lines ─▶ rows in panes ─▶ sealed snapshots (``checkpoint``, ``counters``)
    rollup      sender ─▶ combiners in the flow's tree ─▶ root: commits of panes (``contributions``)
    assembly    committed panes ─▶ windows
    group       the job group: the master with its versions, the roots of the flows that the job brought
    catalog     the catalog log: members, flows and jobs, which each agent follows
    program     jobs in Python
    graphs      jobs in Python over the vertices of a graph

Some policies concern both ends of that way, and have a module here with the whole of it: ``stragglers``,
``parts`` (late rows), ``gaps``, ``reexecution``, ``thresholds``, ``approximate``.
"""

from elf.job.program.api import Job
from elf.job.program.host import JobError, QueryFailed
from elf.job.program.rounds import Lines, Rounds, all_lines, lines_of
from elf.job.program.values import Message

__all__ = ["Job", "JobError", "Lines", "Message", "QueryFailed", "Rounds", "all_lines", "lines_of"]
