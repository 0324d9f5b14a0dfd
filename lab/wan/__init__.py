"""Jobs across slow links: the figures of *Wide-Area Spark Streaming*, and elf's planner of routes beside
every plan that there is: ``elf sim wan``.

| module | what |
|---|---|
| ``network`` | links with a rate and a delay, and batches on their way: what is *measured* |
| ``drawn`` | the paper's testbed, small and large problems, from a seed |
| ``printed`` | the paper's Algorithm 1 as it is printed |
| ``exact`` | the best of all plans, by trying each |
| ``panes`` | panes of drawn web logs, in bytes as agents have them |
| ``scenarios`` | what is run, beside its target |
| ``spaces`` | regions of real agents: network namespaces, joined by links of a rate (``elf bench wan``) |
| ``proxy`` | links with a rate and a delay for anybody's connections |
| ``loopback`` | regions of real agents without namespaces, joined by such a proxy |
"""
