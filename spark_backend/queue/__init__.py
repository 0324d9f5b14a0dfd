"""A queue for offline runs: production first, and the work of research is kept (Natjam and Natjam-R,
Assured Cloud Computing, section 6.6).

A *run* (the paper's job) is a list of *tasks*; a task is tried by *attempts*, each in one *container* of a
host. ``manager`` has the containers: it grants them, and its preemptor reclaims some when a more important
run waits in a full cluster. ``master`` has one run: the states of its attempts (``attempts``), and the
releaser, which chooses the tasks that give way. ``policies`` says which run and which task; ``progress`` how
long a task still takes. These five are pure: time is an integer of milliseconds that callers pass, chance is
a function that they give, and messages are calls. The simulator (``lab.queue``) and the daemon (``serve``)
carry the same messages, one on virtual time and one with Spark.

A message of YARN's is a call here, and a heartbeat's reply is its result. The thirteen steps of Figure 6.17:

===== =================================================== ==================================
step  what happens                                        call
===== =================================================== ==================================
1     the master of run 1 asks for a container            ``Manager.heartbeat``
2, 3  the cluster is full: run 2 is the victim            ``Manager.preempt``
4     the master of run 2 is told to release one          ``Manager.heartbeat`` (``release``)
5     its releaser chooses a task                         ``Master.told``
6     the task is asked to suspend at its next heartbeat  ``Master.task_heartbeat``
7     the task saves a checkpoint                         the task
8     its master receives it                              ``Master.suspended``
9, 10 the container is free                               ``Manager.freed``
11    the master of run 1 is granted it                   ``Manager.heartbeat`` (``granted``)
12    it sends the task there                             ``Master.told`` (``Launch``)
13    the task runs                                       ``Master.launched``
===== =================================================== ==================================
"""
