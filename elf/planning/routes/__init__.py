"""Over which regions jobs send, and how often: links between regions are slow and shared, so trees and
batch intervals are chosen for all jobs at once (*Wide-Area Spark Streaming: Automated Routing and Batch
Sizing*).

| module | asks |
|---|---|
| ``model`` | what links, jobs and trees are |
| ``sizes`` | U(I): how many bytes a batch takes after reduction; learned from panes |
| ``intervals`` | how often each job sends, with trees given: the paper's problem (6) |
| ``trees`` | trees and intervals together, relaxed and rounded: what the paper's step (7) means |
| ``exchange`` | better trees than the rounded ones |
| ``planner`` | all of it, as a decision with its reasons |
| ``turning`` | how long panes are held, and whether a plan is so much better that jobs turn to it |
| ``solving`` | linear programmes by SciPy, loaded only here and only when something is planned |

A tree has two hops at most: a region sends directly, or over one other region, where the groups of all
that send over it are merged, so they cross its border once. The paper's step 5 leaves out constraint (2),
that links carry what goes over them. As printed it takes for each job the tree with the fewest bytes,
which is always the direct one (``lab.wan.printed``).
"""
