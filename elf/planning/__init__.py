"""What is best for a fleet, as pure functions of what was measured: a planner gets loads or rates, and
returns a decision with its reasons. Nothing here acts or reads a clock. Nothing remembers but, of one agent,
``budgets`` and ``overload`` what their last looks have seen, ``turns`` what waits, ``rests`` what the last
panes took, and ``days`` what has gone up today.

| module | asks | after |
|---|---|---|
| ``balance`` | which units of work go from which agent to which | Flux (ICDE 2003), as Enorm uses it (3.2) |
| ``latency`` | what a latency comes to, by a model: mean, variance, quantiles | SCALLA (VLDB 2015), 3 |
| ``lateness`` | whether a shorter LATENESS would do | – |
| ``solve`` | how a job is run so that its windows come as early as it promises | SCALLA, 3.1 |
| ``drift`` | whether the settings of a promise still fit | – |
| ``costs`` | what flows and jobs cost, as was learned, and what a new job would | – |
| ``budgets`` | at which weights flows are mapped so that jobs, people and agents keep their budgets | – |
| ``overload`` | which flows have rows left out so that windows are in time | SCALLA, 4 |
| ``turns`` | which flow maps its rows next, and which are left out, where promises differ | SCALLA, 4 |
| ``rests`` | how much time a deadline leaves for what comes after it | – |
| ``deadlines`` | which of many tasks can be in time | SCALLA, Algorithms 1 and 2 |
| ``lent`` | what an owner lends, and what is taken of it | – |
| ``memory`` | how much of its open panes a flow has in memory, by what readers are lent | max-min fairness |
| ``days`` | how many bytes may go up in a second so that a day's are enough | – |
| ``phases`` | where the latency of windows is, and what would help | SCALLA, 3.2 |
| ``pacing`` | whether it is time to change anything by itself, and of which jobs | – |
| ``etp`` | which operator grows on new machines, which machine leaves | Stela (*Assured cloud computing*) |
| ``fusion`` | which operators belong in one component | Enorm (DEBS 2016), Algorithm 1 |
| ``scaling`` | how many roots a job should have, and which agents can go | Stela, over what elf has |
| ``splitting`` | whether a windowed component is split or combined | Enorm, 5.1.1 and 5.1.2 |
| ``stretches`` | which vertices go where when agents come or leave | LFGraph (*Assured cloud computing*) |
| ``rings`` | the same, where a change touches as few agents as can be | LFGraph |
| ``routes`` | over which regions jobs send, and how often | *Wide-Area Spark Streaming* |

Equal arguments give equal decisions, whoever decides: ties fall to the first by name. So another agent that
goes on with the same facts goes on with the same decisions.
"""
