"""``elf bench paper``: the figures of the paper's evaluation (section 4), from one command.

No figure is measured here: each asks other commands of the lab (``elf bench …``, ``elf sim …``) for their
JSON and reads its curves out of that.

| room | has |
|---|---|
| ``bench`` | the command: asks, and says what was found |
| ``curves`` | what a figure shows, and where elf loses in it |
| ``figures`` | which figures there are, what the paper reported in each, which commands it asks |
| ``readers`` | the curves of each figure, out of what its commands said |
| ``measured`` | all that is known of a figure, for the page and as JSON |
| ``pictures`` | the curves as SVG |
| ``folder`` | pictures, JSON and the page, where figures of other runs stay |
| ``page`` | all figures as one HTML page: where elf loses, what was not measured, and then each figure |
"""
