"""The figures of SCALLA (*Supporting Scalable Analytics with Latency Constraints*, VLDB 2015) in the paper's
own setting, on virtual time: ``elf sim latency``.

| module | what |
|---|---|
| ``pipeline`` | one node with mappers and reducers that share its cores, row by row: what is *measured* |
| ``modelled`` | the same by ``elf.planning.latency``; the setting with the highest rate within a bound |
| ``deadlines`` | which tasks are done in time, and which are left out: Algorithms 1 and 2 (4.1, 4.2) |
| ``mixed`` | flows of one stream that promise different things: by weights, and by deadlines |
| ``overload`` | rows with deadlines, of which not all can be done: EDF, cost-aware, D-over |
| ``scenarios`` | what is run, beside its target |

elf itself has no shuffle and no rows on disk: these are figures of the paper's model and not of the product,
for which ``EXPLAIN LATENCY`` has the model beside what is measured.
"""
