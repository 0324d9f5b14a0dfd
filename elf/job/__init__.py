"""Jobs: the protocol of roots, masters and workers, and ``Job``, the class of those that are written in
Python."""

from elf.job.program.api import Job, JobError, QueryFailed
from elf.job.program.rounds import Rounds

__all__ = ["Job", "JobError", "QueryFailed", "Rounds"]
