"""Job groups: a job's master and the roots of its flows, on the agent that leads the job's Raft group.

    groups           which job groups are here: how they come and go        (the registry)
    router           the job group that a message or an event is for        (the router)
    group            one job group: master, reconfiguration, subscribers
    master           the life of a job; ``versions``: one version's windows
    reconfiguration  how a job is changed; who waits for that
    outputs          the job's windows on their way out of the fleet
    reading          the panes of flows that masters here read
    commits          what a job group commits, and who is told; ``records``: its log
    proposals        what the catalog log should say of job groups and does not say yet

**The way of an ALTER, from shell to worker.** Each arrow is a call or a message; each box is passed once.

    shell
      │ Execute                                       the agent that was asked
      ▼
    Clients ─▶ Statements ─▶ Changes.alter ─▶ Planning.plan
      │ ReconfigureJob                                      the agent that leads the job's group
      ▼
    Requests ─▶ Router.asked ─▶ JobGroup.reconfigure ─▶ Reconfiguration.reconfigure ─▶ Master.alter
      │                                               PREPARE: a ``Change``
      │ SaveJob ─▶ Commits.wanted ─▶ Hosting.commit ─▶ (majority, store) ─▶ Commits.applied
      ▼
    Proposals.say
      │ AddVersion                                    the voters of the catalog log
      ▼
    Catalog.serve ─▶ (majority) ─▶ VersionAdded ─▶ Catalog.spread, down the streams' trees
      │ VersionAdded                                  every member of a stream of the job
      ▼
    Node._follow ─▶ Working.begin ─▶ Install ─▶ the stream's stream task
      │ Begun, gathered on the way up                 the root of each new flow, mostly where the master is
      ▼
    Working ─▶ Router.arrived ─▶ FlowRoots.begun
      │ SaveFlow ─▶ Commits.wanted ─▶ Hosting.commit ─▶ (majority, store) ─▶ Commits.applied
      ▼
    JobGroups.advance ─▶ JobGroup.advance ─▶ Reconfiguration.advance ─▶ Master.advance    COMMIT(P), or ABORT
      │ SaveJob ─▶ (as above) ─▶ Reconfiguration.take_answers
      │ Answer                                        the agent that was asked
      ▼
    Clients ─▶ Changes, until its log has the version ─▶ Reply ─▶ shell

A change under way is one value, ``master.Change``: the version that is prepared, since when, who waits for
it, and how it has ended. The next leader of the group begins with the job's record.
"""
