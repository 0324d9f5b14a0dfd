"""What stands before the request of an access log's line: who asked, and perhaps of which virtual host.

``client identity user [date] ``, nearly always. A line that only looks like it would have a wrong client or
user in silence, so it is refused unless its fields are certain:

- the identity is ``-`` or a word that is no name of a host and no address;
- a user name may have blanks where the identity is ``-``, and no word of it is a lone ``-``, which is an
  empty field;
- the client has no comma, and is not the name of a host with a port.

In front of that may be a byte order mark and blanks; a virtual host (Apache's ``vhost_combined``, ``%v:%p``),
which is certain if it has a port, or if an address follows; and in place of the client a list of addresses
with commas between them (``X-Forwarded-For``), of which the first is the client, by convention: the others
are those of proxies.
"""

from __future__ import annotations

import re
from typing import Final

from agents.formats.dialect import Dialect, Step
from elf.ql.timestamps import LOG_DATE, USUAL_LOG_DATE, log_date_us, usual_log_date_us

_MARK: Final = "\ufeff"
_CLIENT: Final = f"(?:[^ ,:{_MARK}]+|[0-9.]+:[0-9]+|unix:[^ ,]*|[^ ,:{_MARK}]*:[^ ,:]*:[^ ,]*)"
_IDENTITY: Final = "[^ .:,]+"
_WORD: Final = "(?:-[^ ]+|[^ -][^ ]*)"
_BLANKS_MAX: Final = 9
"""In a user name: each more is a frame on Java's stack."""
_USER: Final = f"-|{_WORD}(?: +{_WORD}){{0,{_BLANKS_MAX}}}"
_PLAIN: Final = rf"{_CLIENT} {_IDENTITY} (?:-|{_WORD}) \[{USUAL_LOG_DATE}\] "

_FOUR: Final = "[0-9]{1,3}(?:[.][0-9]{1,3}){3}"
_SIX: Final = "[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
_ADDRESS: Final = rf"(?:{_FOUR}(?::[0-9]+)?|{_SIX}|\[{_SIX}\](?::[0-9]+)?)"
_OTHERS: Final = r"(?:,[0-9A-Fa-f.:,\[\] ]*[0-9A-Fa-f:\]])?"
_WITH_PORT: Final = rf"(?:[^ ,:]+|\[{_SIX}\]):[0-9]{{1,5}}"
_NAMED: Final = "[0-9.]*[^ ,:0-9.][^ ,:]*"
"""No four numbers: which of two addresses is the client is anybody's guess."""
_NO_DASH: Final = "-*[^ ,-][^ ,]*"
_FRONTED: Final = (
    f"^[{_MARK} ]*(?:(?:"
    f"(?:({_WITH_PORT}|{_NAMED}) )?({_ADDRESS}){_OTHERS}|({_WITH_PORT}) ({_NO_DASH})|({_CLIENT})"
    rf") - ({_USER})|({_CLIENT}) {_IDENTITY} (-|{_WORD})) \[{LOG_DATE}\] \z"
)
_CLIENT_USER_HOST: Final = ((2, 4, 5, 7), (6, 8), (1, 3))
_DATE_LENGTH: Final = 26


_CERTAIN: Final = re.compile(_FRONTED.replace(r"\z", r"\Z"), re.DOTALL)


def is_head(head: str) -> bool:
    """Whether the fields of what stands before the request are certain."""
    return _CERTAIN.match(head) is not None


def head_steps(dialect: Dialect) -> list[Step]:
    """From ``_head`` to ``_time`` (µs; NULL where the fields are not what they should be), ``_client``,
    ``_user`` and ``_host``, which is the virtual host in front."""
    date = f"substr(_head, length(_head) - {_DATE_LENGTH + 1}, {_DATE_LENGTH})"
    usual, other = (read(date, dialect.engine) for read in (usual_log_date_us, log_date_us))
    fronted = dialect.separate("_head", _FRONTED, _CLIENT_USER_HOST)
    is_fronted = dialect.is_separated("_fronted")
    client, user, host = (dialect.separated("_fronted", part) for part in (1, 2, 3))
    return [
        (("_plain", dialect.matches("_head", _PLAIN)),),
        (("_fronted", f"CASE WHEN NOT _plain THEN {fronted} END"),),
        (
            ("_time", f"CASE WHEN _plain THEN {usual} WHEN {is_fronted} THEN {other} END"),
            ("_client", f"CASE WHEN _plain THEN {dialect.part('_head', ' ', 1)} ELSE {client} END"),
            ("_user", f"CASE WHEN _plain THEN {dialect.part('_head', ' ', 3)} ELSE {user} END"),
            ("_host", f"nullif({host}, '')"),
        ),
    ]
