"""The queue of ``spark_backend.queue`` on virtual time, with other ways to share a cluster beside it.

``world`` carries the messages between a manager, masters, hosts and simulated tasks; ``sharing`` has the
ways; ``scenarios`` the experiments of Assured Cloud Computing, section 6.6, and ``optimal`` the theorem about
SRT. Lengths of tasks are drawn from a seed: the paper's own are not printed. What was constructed in place of
what its text lacks is named where it stands.
"""
