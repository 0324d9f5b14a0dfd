"""Users' code, in processes of its own: functions over Arrow batches, and jobs written in Python.

``zygote`` is the template that forks; ``confinement`` builds the walls, of ``landlock`` and ``syscalls``;
``child`` runs inside; ``wire`` is what passes between; ``sandbox`` is the agent's side; ``allowed`` says
whose code runs. On these stand ``function`` (map, reduce, final), ``checks`` and ``hosts`` (jobs of an
agent).
"""
