"""The page: a fleet in a browser. ``elf ui`` serves it with a person's keys; an agent does with
``http.page: true``, to whoever shows it a token.

``Page`` (``elf.page.app``) is an ASGI application: files, which are the same for everybody and tell nothing
of the fleet, and a JSON API, which needs a token. Whom a token lets in, and through what they ask the fleet,
is the host's to say (``elf.page.visitors``). The page itself is one more client: it asks in ELF-QL, and the
agent that answers decides by the asker's roles.

Rules:

- A token travels in ``Authorization`` alone. A browser sends that by itself to nobody, so that another site,
  or another port of this machine, can make no request in a visitor's name. It is in no cookie, and in no
  address but behind ``#``, which browsers keep to themselves.
- Whatever comes from a log is text in the page, too: scripts set ``textContent``, never HTML, and the
  Content-Security-Policy (``POLICY``) lets nothing run that is no file of ours.
- The page asks nobody but who served it. There is no build: what is in ``static`` is what runs.
- A request has so many bytes, and a browser so many windows at once (``elf.page.asked``).

| file | what it is |
|---|---|
| ``app`` | routes, and what is refused before anything is asked |
| ``visitors`` | who is at the page, and what serves it |
| ``asked`` | the requests that have a body |
| ``answers`` | tables, windows and results as JSON |
| ``events`` | server-sent events, out of one source of windows or several |
| ``report`` | queries and their windows in one file, with no server |
| ``panels`` | the queries of ``queries``, over another stream, time and with filters |
| ``static`` | HTML, CSS and ES modules; ``vendor`` has uPlot, with its licence |
"""
