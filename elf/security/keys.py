"""The key pair of a host, a person or a cluster's authority: one Ed25519 seed, which signs.

The X25519 pair with which its owner's connections are encrypted and authenticated (CURVE) is derived from it,
so a certificate over the one public key speaks for both.
"""

from __future__ import annotations

import base64
from typing import Final

from nacl.bindings import crypto_sign_PUBLICKEYBYTES, crypto_sign_SEEDBYTES
from nacl.exceptions import BadSignatureError, CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.signing import SigningKey, VerifyKey

from elf.errors import UserError
from elf.security.principals import CurvePair

KEY_BYTES: Final = crypto_sign_PUBLICKEYBYTES
"""Of a public key."""
SEED_BYTES: Final = crypto_sign_SEEDBYTES


class KeyPair:
    """A secret key and what follows from it."""

    def __init__(self, seed: bytes) -> None:
        """``seed``: 32 bytes. Raises ``UserError``."""
        if len(seed) != SEED_BYTES:
            raise UserError(f"a secret key has {SEED_BYTES} bytes, this one has {len(seed)}")
        self._signing = SigningKey(seed)
        self.public: Final = bytes(self._signing.verify_key)
        """The key by which others know its owner."""

    @classmethod
    def new(cls) -> KeyPair:
        """A pair that nobody had before."""
        return cls(bytes(SigningKey.generate()))

    @property
    def seed(self) -> bytes:
        return bytes(self._signing)

    @property
    def curve(self) -> CurvePair:
        """The pair for connections."""
        secret = self._signing.to_curve25519_private_key()
        return CurvePair(bytes(secret.public_key), bytes(secret))

    def sign(self, data: bytes) -> bytes:
        """The signature alone, 64 bytes."""
        return self._signing.sign(data).signature

    def unseal(self, sealed: bytes) -> bytes:
        """What ``seal`` hid for this key. Raises ``UserError``."""
        try:
            return SealedBox(self._signing.to_curve25519_private_key()).decrypt(sealed)
        except (CryptoError, ValueError, TypeError):
            raise UserError("it was sealed for another key") from None


def curve_public(key: bytes) -> bytes:
    """The key of connections that belongs to a public key. Raises ``ValueError`` where that is none."""
    try:
        return bytes(VerifyKey(key).to_curve25519_public_key())
    except (CryptoError, RuntimeError, TypeError) as error:
        raise ValueError(f"not a public key: {error}") from None


def verifies(key: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key signed these bytes."""
    try:
        VerifyKey(key).verify(data, signature)
    except (BadSignatureError, CryptoError, ValueError, TypeError):
        return False
    return True


def seal(key: bytes, secret: bytes) -> bytes:
    """Bytes that only the owner of a public key can read. Raises ``ValueError``."""
    return SealedBox(PublicKey(curve_public(key))).encrypt(secret)


def curve_of_secret(secret: bytes) -> CurvePair:
    """The pair of an X25519 secret key."""
    return CurvePair(bytes(PrivateKey(secret).public_key), secret)


def shown(data: bytes) -> str:
    """A key, or other bytes, as text: base64url without padding; of a key 43 characters."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unshown(text: str) -> bytes:
    """The opposite. Raises ``ValueError``."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def read_key(text: str) -> bytes:
    """A key from its text. Raises ``UserError``."""
    try:
        key = unshown(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UserError(f"{text[:64]!r} is no key: it has 43 letters, digits, - and _")
    return key
