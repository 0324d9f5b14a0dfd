"""Keys that an agent does not admit, for its audit: from where, which, and whose it was.

Whoever reaches the port makes such records, so they are few: of so many keys of so many addresses a minute.
What goes beyond has ``others`` for its key, or its address, and is counted with its kind (``agents.audit``:
what repeats is one record, with ``times``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from agents.audit import REPEATS_SECS, Audit

ADDRESSES_MAX: Final = 16
KEYS_MAX: Final = 4
"""Of one address."""
OTHERS: Final = "others"


class Strangers:
    """At one agent. ``owner_of``: whose a CURVE key was before it expired or was revoked; empty: nobody's."""

    def __init__(self, owner_of: Callable[[bytes], str], now: Callable[[], float] = time.monotonic) -> None:
        self._owner_of = owner_of
        self._now = now
        self._since = now()
        self._seen: dict[str, set[str]] = {}
        """Keys in hexadecimal, by address, of this minute."""
        self.audit: Audit | None = None

    def refused(self, address: str, key: bytes) -> None:
        """Somebody came with a key that is not admitted."""
        if self.audit is None:
            return
        if self._now() - self._since >= REPEATS_SECS:
            self._since = self._now()
            self._seen.clear()
        if address not in self._seen and len(self._seen) >= ADDRESSES_MAX:
            address = OTHERS
        keys, name = self._seen.setdefault(address, set()), key.hex()
        if name not in keys and len(keys) >= KEYS_MAX:
            name = OTHERS
        keys.add(name)
        owner = "" if name == OTHERS else self._owner_of(key)
        facts = {"from": address, "key": name, **({"was": owner} if owner else {})}
        self.audit.record("key refused", facts)
