"""The key of one user's agents and clients on one machine: others that have a login there do not have it.

One file has one secret CURVE key, which is both the agents' and everybody's: who can read it is let in, and
may do everything. It is made when an agent first needs it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from elf.errors import UserError
from elf.security.files import read_secret, write
from elf.security.principals import LOCAL, CurvePair, Security

LOOPBACK_VARIABLE: Final = "ELF_LOOPBACK_KEY"
"""Names another file."""
_KEY_CHARS: Final = 40


def own_folder() -> Path:
    """Where a person's keys are, unless something else is said."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 (no home: it stays)
    return Path(home) / "elf"


def loopback_file(configured: str = "") -> Path:
    """The file of the key: as configured, else as the variable says, else in the user's folder."""
    named = configured or os.environ.get(LOOPBACK_VARIABLE, "")
    return Path(named) if named else own_folder() / "loopback.key"


def make_loopback(file: Path) -> Security:
    """The security of an agent, whose key is made where it is not there yet. Raises ``UserError``."""
    if not file.exists():
        _, secret = zmq.curve_keypair()
        write(file, secret + b"\n", only_new=True)
    return read_loopback(file)


def read_loopback(file: Path) -> Security:
    """Of an agent or a client. Raises ``UserError``."""
    text = read_secret(file).strip()
    try:
        if len(text) != _KEY_CHARS:
            raise ValueError
        pair = CurvePair(z85.decode(zmq.curve_public(text)), z85.decode(text))
    except (ValueError, KeyError, zmq.ZMQError):
        raise UserError(f"{file} has no loopback key; remove it, and the next agent makes another") from None
    return Security(pair, pair.public, pair.secret, lambda key: LOCAL if key == pair.public else None)
