"""What it costs to scale a graph computation out and in while it runs: a model of LFGraph (*Assured cloud
computing*, 6.5.2) over ``lab.graphs.placement``, for ``elf sim graph``."""
