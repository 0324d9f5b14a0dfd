"""The keys of a running agent: how closed it is, what it has itself, and whom it knows.

Three modes. *keys*: its folder of keys has an identity; connections are those of the fleet's roster.
*loopback*: it has none, and listens on loopback; connections are those of who can read one file. *open*: its
owner says so; anybody is anybody. An agent without keys that others could reach does not start.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final, Literal

from agents.config import LISTENING, ClusterConfig, Config
from agents.settings.tree import ConfigProblems
from elf.addresses import is_loopback, split_address
from elf.errors import UserError
from elf.fields import replace
from elf.security.bearer import check_loopback, owner
from elf.security.certificates import Certificate, Signed
from elf.security.folder import IDENTITY_FILE, Keys, load
from elf.security.loopback import loopback_file, make_loopback
from elf.security.principals import LOCAL, CurvePair, Principal, Security
from elf.security.roster import Roster

Mode = Literal["keys", "loopback", "open"]
OPEN: Final = (
    "security is open: whoever reaches this agent can read its logs and run code as its user "
    "(elf keys init makes keys)"
)
TOKEN_CHARS_MIN: Final = 16
_MAKE: Final = "make keys (elf keys init, elf keys enrol), or write security: open to let anybody in"


class Keyring:
    """``security`` is what a transport needs now; None: its connections are plain. ``keys`` and ``roster``
    are there in mode *keys* alone."""

    def __init__(self, mode: Mode, security: Security | None = None, keys: Keys | None = None) -> None:
        self.mode: Final = mode
        self.keys: Final = keys
        self.roster: Final[Roster | None] = keys.roster() if keys is not None else None
        self._known: dict[bytes, tuple[Certificate, Principal]] = {}
        self.security = security
        self.renew()

    def renew(self) -> None:
        """Have ``security`` be with the key that the fleet listens with now. Raises ``UserError`` where this
        host was not given it."""
        keys, roster = self.keys, self.roster
        if keys is not None and roster is not None:
            server = keys.listens_with(roster, time.time())
            if self.security is None or self.security.server != server.public:
                self.security = Security(keys.pair.curve, server.public, server.secret, self.admit)

    @property
    def renews_in_secs(self) -> float | None:
        """Until the fleet listens with another key; None: none is known."""
        known = self.roster.server_keys if self.roster is not None else None
        left = known.starts - time.time() if known is not None else 0.0
        return left if left > 0 else None

    @property
    def newest(self) -> bytes:
        """The key that the fleet listens with at last, as far as is known; empty: it has none."""
        known = self.roster.server_keys if self.roster is not None else None
        return known.newest if known is not None else b""

    def pairs(self) -> dict[bytes, CurvePair]:
        """The pairs of listening sockets that a new host is to be given, by their public keys."""
        return self.keys.pairs(self.roster) if self.keys is not None and self.roster is not None else {}

    @property
    def name(self) -> str:
        """Of the agent, as its certificate says; empty without one."""
        return self.keys.certificate.name if self.keys is not None else ""

    def take(self, signed: Signed) -> str:
        """Something that was signed, as the catalog log has it; why the roster does not take it, else
        empty."""
        return self.roster.take(signed) if self.roster is not None else "this agent has no keys"

    def admit(self, curve_key: bytes) -> Principal | None:
        """Whose connection it is, now."""
        if self.roster is None:
            return None
        found = self.roster.connected(curve_key, time.time())
        if found is None:
            self._known.pop(curve_key, None)
            return None
        known = self._known.get(curve_key)
        if known is None or known[0] is not found:
            known = self._known[curve_key] = found, principal_of(found)
        return known[1]

    def owner_of(self, curve_key: bytes) -> str:
        """Whose key it is or was, whatever has become of it; empty: nobody's."""
        found = None if self.roster is None else self.roster.ever_connected(curve_key)
        return "" if found is None else found.name

    def refused_reader(self, text: str) -> str:
        """Why the owner of a token for HTTP may not read; empty: it may. Raises ``UserError`` where it is
        none."""
        if self.roster is None:
            return "this agent has no keys"
        return principal_of(owner(text, self.roster, time.time())).lacks("read", "this")

    def visitor(self, text: str) -> Principal | None:
        """Who comes to the page with a token for HTTP; None: anybody. Raises ``UserError`` where it is no
        token, or holds no more."""
        if self.mode == "open":
            return None
        if not text:
            raise UserError("a token is wanted: elf keys bearer makes one")
        if self.roster is not None:
            return principal_of(owner(text, self.roster, time.time()))
        if self.security is None or self.security.server_secret is None:
            raise UserError("this agent has no keys")
        check_loopback(text, self.security.server_secret, time.time())
        return LOCAL


def principal_of(certificate: Certificate) -> Principal:
    return Principal(certificate.kind, certificate.name, certificate.roles, certificate.key)


def open_keyring(config: Config, *, make: bool = True) -> Keyring:
    """The keys of an agent with this configuration. Raises ``ConfigProblems`` where it must not start with
    them. ``make``: the loopback key, where there is none yet."""
    problems = _wrong_http(config) + _wrong_inputs(config)
    try:
        keyring = _keyring(config, make=make)
    except UserError as error:
        raise ConfigProblems([str(error), *problems]) from None
    problems += _contradictions(config, keyring)
    if problems:
        raise ConfigProblems(problems)
    return keyring


def named_by(keyring: Keyring, config: Config) -> Config:
    """The configuration, with the names of agent and cluster that are in its certificate."""
    if keyring.keys is None:
        return config
    cluster = replace(config.cluster, name=keyring.keys.certificate.cluster)
    return replace(config, agent=replace(config.agent, name=keyring.name), cluster=cluster)


def has_identity(config: Config) -> bool:
    """Whether the agent has keys of a fleet."""
    try:
        return (Path(config.keys) / IDENTITY_FILE).exists()
    except OSError:
        return True  # it says why when it is read


def _keyring(config: Config, *, make: bool) -> Keyring:
    if config.security == "open":
        return Keyring("open")
    if has_identity(config):
        keys = load(Path(config.keys))
        try:
            return Keyring("keys", keys=keys)
        except UserError as error:
            raise UserError(f"{config.keys}: {error}; elf keys enrol gives it") from None
    if config.security == "keys":
        raise UserError(f"security: keys, and {config.keys} has no {IDENTITY_FILE}: elf keys enrol makes it")
    listen = config.agent.listen
    if not is_loopback(split_address(listen)[0]):
        raise UserError(
            f"agent.listen: other machines can reach {listen}, and {config.keys} has no keys: {_MAKE}"
        )
    file = loopback_file(config.loopback_key)
    try:
        if not make and not file.exists():
            return Keyring("loopback")
        return Keyring("loopback", make_loopback(file))
    except (UserError, OSError) as error:
        raise UserError(f"{error} (loopback_key names another file)") from None


def _wrong_http(config: Config) -> list[str]:
    """What keeps HTTP from being served there."""
    http = config.http
    if bool(http.tls_cert) != bool(http.tls_key):
        return ["http.tls_cert and http.tls_key go together: one of them is missing"]
    if http.tls_cert and (why := _unusable(http.tls_cert, http.tls_key)):
        return [f"http.tls_cert, http.tls_key: {http.tls_cert} and {http.tls_key} cannot be used: {why}"]
    if not http.listen or config.security == "open" or is_loopback(split_address(http.listen)[0]):
        return []
    if not has_identity(config):
        return [
            f"http.listen: other machines can reach {http.listen}, and {config.keys} has no keys: {_MAKE}"
        ]
    if not http.tls_cert:
        return [
            f"http.listen: other machines can reach {http.listen}: set http.tls_cert and http.tls_key, "
            "so that nobody on the way reads tokens and results"
        ]
    return []


def _wrong_inputs(config: Config) -> list[str]:
    """What keeps lines from being received."""
    found = []
    for name, stream in config.streams.items():
        if stream.type not in LISTENING:
            continue
        receive, key = stream.receive, f"streams.{name}.receive"
        if bool(receive.tls_cert) != bool(receive.tls_key):
            found.append(f"{key}.tls_cert and {key}.tls_key go together: one of them is missing")
        elif receive.tls_cert and (why := _unusable(receive.tls_cert, receive.tls_key, receive.tls_ca)):
            found.append(f"{key}.tls_cert, tls_key, tls_ca: the files cannot be used: {why}")
        try:
            token_of(receive.token_file)
        except UserError as error:
            found.append(f"{key}.token_file: {error}")
        open_to_all = config.security == "open" or receive.open
        if not receive.listen or open_to_all or is_loopback(split_address(receive.listen)[0]):
            continue
        if not receive.token_file and not receive.tls_ca:
            ways = "receive.tls_ca" if stream.type == "syslog" else "receive.token_file or receive.tls_ca"
            found.append(
                f"{key}.listen: other machines can reach {receive.listen}, and anybody could send lines: set "
                f"{ways}, or say receive.open: true"
            )
        elif receive.token_file and not receive.tls_cert and stream.type != "forward":
            found.append(
                f"{key}.listen: other machines can reach {receive.listen}: set receive.tls_cert and "
                "receive.tls_key, so that nobody on the way reads the token"
            )
    return found


def token_of(path: str) -> str:
    """The secret in a file; empty: none is wanted. Raises ``UserError``."""
    if not path:
        return ""
    try:
        token, mode = Path(path).read_text(encoding="utf-8").strip(), Path(path).stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    if mode & 0o077:
        raise UserError(f"other users may read {path}; close it: chmod 600 {path}")
    if len(token) < TOKEN_CHARS_MIN:
        raise UserError(
            f"{path} has no token of {TOKEN_CHARS_MIN} characters at least (openssl rand -hex 32)"
        )
    return token


def _unusable(certificate: str, key: str, ca: str = "") -> str:
    """What is wrong with these files of TLS; empty: nothing."""
    import ssl  # where it is used

    try:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(certificate, key)
        if ca:
            made.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
    return ""


def _contradictions(config: Config, keyring: Keyring) -> list[str]:
    if keyring.keys is None:
        return []
    found = []
    cluster = keyring.keys.certificate.cluster
    if config.agent.name not in (keyring.name, socket.gethostname()):
        found.append(f"agent.name: {config.agent.name}, and the keys in {config.keys} are {keyring.name}'s")
    if config.cluster.name not in (cluster, ClusterConfig().name):
        found.append(f"cluster.name: {config.cluster.name}, and the keys in {config.keys} are for {cluster}")
    if keyring.roster is not None and keyring.roster.of(keyring.keys.pair.public) is None:
        found.append(f"{config.keys}: the certificate is not of this fleet's authority, or was revoked")
    elif not keyring.keys.certificate.valid(time.time()):
        found.append(f"{config.keys}: the certificate has expired; elf keys enrol makes another")
    return found
