"""``elf bench rotation``: whatever rotates a log, and whenever its agent dies, no row is lost in silence.

A *cell* is one run: a web server that writes numbered requests at a given rate, a way of rotating its log,
and a script of what happens to the agent meanwhile (``cells``). Real nginx writes and real logrotate rotates
(``writers``, ``rotations``; both have a counterpart in Python, for machines without them), beside a real
``elf-agent`` with one job that counts each request (``beside``). nginx keeps a second access log that nobody
rotates: that is the truth. When all is quiet (``side``) the judge compares (``judge``):

    rows in windows + rows in named gaps = rows that nginx wrote

A row is in a named gap if no window has it, no file of the log's folder holds it any more, and its time lies
within the gap. A row that is in neither is lost in silence; one that counts twice is doubled; a gap is false
when a window has each row of its time, or (the agent was away) when a file still does; a gap that is not told
everywhere is untold. Each of these fails the cell. Of a log that is copied and cut an agent can't know
whether anything was written in between, so it names each cut; those at which nothing was lost are counted
apart (``unsure``) and fail nothing.

With ``--reader rsyslog`` or ``syslog-ng`` another reader takes the agent's place (``neighbours``): it is told
of the log, writes what it reads to a file, and names no gaps.

What nobody could have read is counted apart (``raced``) and fails nothing: logrotate says of
``copytruncate`` that what is written between its copy and its cut is lost, and with ``compress`` nginx may
still write to a file that was just compressed. Such rows were in no file after the rotation during which they
were written; a row that an agent held open is not excused so.
"""
