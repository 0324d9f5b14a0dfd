"""Receivers: what is sent to an agent, and does not lie in a file.

A *receiver* speaks one protocol, on the agent's loop, and writes each message as a line into the spool of its
stream (``agents.inputs.spool``); from there on lines are read as those of files are. Each says in the words
of its protocol that it has a message, when that is durable, and that it has no room:

====================  ==============================  ===========================================
receiver              it is durable                   there is no room
====================  ==============================  ===========================================
``http``, ``otlp``    202, 200                        503 (Retry-After)
``forward``           ``ack`` of the ``chunk``        nothing is read; the sender waits
``syslog`` over TCP   (the protocol has no word)      nothing is read; the sender waits
``syslog`` over UDP   (no word either)                counted, and named as a gap in windows
``journal``           (the cursor is in the spool)    nothing is read; the journal waits
====================  ==============================  ===========================================

Rules: sizes are known and bounded before anything is decoded; who begins a message has ``WAIT_SECS`` to go on
with it; connections are bounded, and those of one address; what is no message of the protocol is refused,
counted, and stops nothing. What a crash leaves open is repeated by its sender, and known by its key: the
``chunk`` of forward, an ``Idempotency-Key`` over HTTP, the bytes of a batch of OTLP (each record of which has
its nanosecond). Nobody repeats syslog: what was sent and not yet on the disk when an agent is killed is gone,
as at any syslog server.
"""
