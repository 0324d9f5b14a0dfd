"""Doors for what speaks other protocols: Arrow Flight SQL (``flight``), which pandas, polars, DuckDB and all
else with an ADBC driver speak; and the Model Context Protocol (``tools``), for language models.

``elf flight`` and ``elf mcp`` open them, for one person, who asks the fleet through their own keys, as
``elf ui`` does. Rules:

- A door reads. A text is one statement that changes nothing, by the table of roles (``elf.security.roles``);
  the agent that answers decides by the asker's roles once more. No file of this machine is read for it, since
  whoever wrote the text may be a language model that a log has talked to.
- It is closed to all but whoever opened it: it listens on loopback and wants a token, or talks to the process
  that started it.
- It has an end. So many statements are answered at once, within so many seconds, and so many bytes of results
  wait for whoever asked. Of a SELECT over live streams come the next windows, as many as the person has said.
  A language model has a budget besides (``budget``).
- What it does not know of a protocol it says so: drivers go on without.

``answers`` has statements answered, for all of them; ``messages`` reads and writes the few messages of Flight
SQL.
"""
