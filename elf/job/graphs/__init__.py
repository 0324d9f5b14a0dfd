"""Graph computations over several agents, after LFGraph (*Assured cloud computing*, 6.5.2): for graphs that
one process should not hold. ``WITH GRAPH`` in a query makes smaller ones at a job's master.

A computation is a job in Python (``elf.job.program``); nothing else of an agent knows of it. The fleet's
agents send the edges of their own rows to those that have the vertices (``worker``, over ``part``), and these
go through iterations together, which the master begins and counts (``barrier``). ``job`` is what both are
part of, and what users write subclasses of; ``algorithm`` is what these say of values, and ``algorithms`` has
those that are ready; ``clusters`` is one without edges.

Rules, and where they come from:

- Values are named by run, iteration and agent. An iteration begins when the one before is over everywhere, so
  nobody is more than one ahead, and a message is once in the state of who gets it (protocol 14.1 to 14.4).
  So a crash takes one agent back to its last checkpoint and no further: what it has said since has not left.
- An iteration is of one layout. The next one is made beside it, out of pieces of it, and counts from the
  iteration on whose values were held at their old places until all were there.
- An agent that is lost with its disk ends a run; the next one has the rows of all others. One that was to
  get a part, and has none yet, ends the change alone.
- Where a vertex has more than one number, its value is a row. Where the master must know more than one sum,
  parts report to it, and it tells all with the next iteration what follows (``clusters``).
- What comes of a run depends on its edges alone, to the last bit where weights are integers: vertices, edges
  and sums are in the order of hashes, whoever has them.
"""

from elf.job.graphs.algorithm import Algorithm
from elf.job.graphs.algorithms import Components, MultiSourcePaths, PageRank, ShortestPaths
from elf.job.graphs.clusters import KMeans
from elf.job.graphs.job import GraphJob

__all__ = [
    "Algorithm",
    "Components",
    "GraphJob",
    "KMeans",
    "MultiSourcePaths",
    "PageRank",
    "ShortestPaths",
]
