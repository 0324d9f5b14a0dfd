"""Jobs: the protocol of roots, masters and workers, and ``Job``, the class of those that are written in
Python."""

from elf.job.program.api import Job, JobError, QueryFailed
from elf.job.program.rounds import Lines, Rounds, all_lines, lines_of
from elf.job.program.values import Message

__all__ = ["Job", "JobError", "Lines", "Message", "QueryFailed", "Rounds", "all_lines", "lines_of"]
