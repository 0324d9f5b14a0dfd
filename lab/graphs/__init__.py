"""What it costs to scale a graph computation out and in while it runs: a model of LFGraph (*Assured cloud
computing*, 6.5.2) over ``elf.planning.stretches``, for ``elf sim graph``; and real
computations (``elf.job.graphs``) while everything goes wrong."""
