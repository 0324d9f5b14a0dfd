"""The figures of Enorm and of Stela's chapter, on virtual time: ``elf sim moving``.

| module | is |
|---|---|
| ``jobs`` | random jobs, as Enorm draws them, and the baseline of its figures 14 and 15 |
| ``rates`` | topologies of operators on machines, as flows of tuples: Stela |
| ``topologies`` | those of Stela's figures, constructed |
| ``states`` | what it costs here to send a state on, and to add to one: measured |
| ``groups`` | nodes with key groups whose load changes: Enorm's figures 10 to 13 |
| ``fused`` | operators that hand tuples on, in one component or several: figure 16 |
| ``master`` | a master that is moved, in a simulated fleet of real nodes |
| ``balanced`` | a hundred jobs after a rolling restart, which then move by themselves |
| ``scenarios`` | all of them by name, with what was measured and the target |

The papers' figures are pictures without numbers, and of two topologies not even the layout is known: what is
compared is an order, a shape or a factor that the text names, and the module says what was constructed.
"""
