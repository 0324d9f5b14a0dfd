"""Traces of panes on their way through the tree. ``spans`` sees what passes the loop, and makes two things of
it: spans for OpenTelemetry, which ``sending`` brings to a collector, and stamps for EXPLAIN LATENCY, the last
of which ``stamps`` keeps. Spans are made where a collector is set, stamps always.

No message has anything more for it. Which panes are traced, the id of a pane's trace and that of its first
span follow from the flow and the pane alone, so the spans of all agents meet at the collector.

| span | by whom | from | to |
|---|---|---|---|
| ``pane`` | root | the pane's end, and lateness | its commit is applied |
| ``seal`` | each worker | the same | its snapshot is durable |
| ``combine`` | inner nodes | the first slice | what it has merged goes up |
| ``gather`` | root | the first slice | the draft begins |
| ``draft`` | root | | the record is made |
| ``commit`` | root | | a majority has it, and it is applied |
| ``window`` | master | its draft begins | it is applied |

A pane whose end is long past, as of old lines that are read now, begins when something of it is here.
"""
