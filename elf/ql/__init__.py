"""ELF-QL: from a text to a plan.

A text is parsed once. The following steps work on the tree of a query, which ``Query`` carries with its text,
so that errors find their line and column. Nothing here reads a file or knows a fleet: schemas, tables and
other jobs' plans are arguments.

    text
     │  statements.parse        tokens, tree (dialect), parameters; ALTER and its like (changes)
     ▼
    Statement, with its Query
     │  jobs.expand             the queries of jobs in the places of their names (FROM JOB)
     │  files.tables_of         the tables that it joins
     ▼
    Query, schemas, tables
     │  planner.plan_streams
     │    rules.RULES           each clause read and bound: names and types (scope, bind_*), functions
     │      ▼                   (functions*, signatures, kinds), windows (bind_windows)
     │    Draft, bound          what comes after the grouping refers to its keys and aggregates
     │    states.collect        partial aggregates, or more rows of a group (cells)
     │      ▼
     │    fragments, render_map DuckDB, in agents: rows to partial aggregates
     │    render_final          DuckDB, at the master: groups to the rows of a window
     │    render_spark          Spark: the whole query
     ▼
    Plan, of Fragments          what agents, trees, masters and Spark work from (plan)
     │  user_functions          a user's functions over its rows, groups or windows
     │  planner.over_late       the rows that came too late, instead of all (FROM LATE)

A ``Definition`` is what a plan is made from, as it travels: each agent goes this way by itself. ``fuel``
bounds texts and the work of planning.

Special cases have modules of their own: two joined streams (``streamjoins``, ``join_conditions``), windows
over a job's windows (``levels``), and the subscriptions of a job in Python (``groups``). ``render`` renders
an expression, each operation in the form that both engines share (``forms``, ``templates``).
"""
