"""Jobs in Python: the class that people write, what runs it, and how it meets the node.

    CREATE: ``submitting`` ─▶ catalog log ─▶ ``programs``: the jobs of one node
                                                │ events              ▲ effects   (``calls``, ``port``)
                                                ▼                     │
                             a process of its own: ``runner`` calls the user's class (``api``)

- ``masters``: the job's master runs where its job group is led, beside the job of that agent, and goes on
  elsewhere when that agent is gone; ``seats``: which of the two is meant.
- No line of a user's code runs in the agent's process.
- ``asking``: queries between masters, with a timeout and without cycles; ``rounds``: a combining barrier.
- ``spec``: the job as a value in the catalog log; ``values``: the messages that callbacks send and get.
"""
