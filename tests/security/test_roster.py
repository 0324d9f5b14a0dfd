"""Certificates, the roster, and keys in files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elf.errors import UserError
from elf.security import folder
from elf.security.certificates import Revocation, ServerKeys, Signed
from elf.security.enrolling import SKEW_S, stale
from elf.security.files import write
from elf.security.keys import KeyPair, curve_of_secret, curve_public, read_key, seal, shown, verifies
from elf.security.roster import TOKEN_SECONDS_MAX, Roster
from tests.support.certified import AUTHORITY, PAIRS, SHOP, TOKEN, certificate, revocation


def roster(*signed: Signed) -> Roster:
    """Of what is all taken."""
    found = Roster(SHOP, AUTHORITY.public)
    for one in signed:
        assert found.take(one) == ""
    return found


def negative(key: bytes) -> bytes:
    """Another public key with the same CURVE key."""
    return key[:-1] + bytes([key[-1] ^ 0x80])


# -- keys ----------------------------------------------------------------------------------------------------


def test_a_key_signs_seals_and_is_shown() -> None:
    one, other = PAIRS[:2]
    assert verifies(one.public, b"text", one.sign(b"text"))
    assert not verifies(one.public, b"text2", one.sign(b"text"))
    assert not verifies(other.public, b"text", one.sign(b"text"))
    assert not verifies(b"short", b"text", one.sign(b"text"))
    assert not verifies(one.public, b"text", b"short")
    assert one.unseal(seal(one.public, b"secret")) == b"secret"
    with pytest.raises(UserError, match="another key"):
        other.unseal(seal(one.public, b"secret"))
    assert curve_public(one.public) == one.curve.public
    assert read_key(shown(one.public)) == one.public
    assert one.curve.secret not in repr(one.curve).encode("latin-1")


@pytest.mark.parametrize("text", ["", "x", "ä" * 43, shown(b"k" * 32) + "A", shown(b"k" * 31), "=" * 44])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no key"):
        read_key(text)


# -- signatures ----------------------------------------------------------------------------------------------


@given(st.data())
def test_a_changed_bit_of_what_was_signed_is_noticed(data: st.DataObject) -> None:
    signed = certificate("web-1", PAIRS[0])
    whole = signed.body + signed.signer + signed.signature
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    body, signer = len(signed.body), len(signed.body) + 32
    damaged = Signed(bytes(changed[:body]), bytes(changed[body:signer]), bytes(changed[signer:]))
    before = roster()
    assert before.take(damaged)
    assert not list(before)
    assert not before.signed


def test_any_bytes_with_a_good_signature_are_a_certificate_or_an_error() -> None:
    for body in (b"", b"\xc1", b"\x90", b"\x93" * 900, msgspec.msgpack.encode(["elf certificate 1"])):
        signed = Signed(body, AUTHORITY.public, AUTHORITY.sign(body))
        with pytest.raises(UserError, match="no certificate"):
            signed.opened()
        assert roster().take(signed)


@pytest.mark.parametrize("name", ["", "-x", "a b", "a\nb", "x" * 65, "../x", "\x1b[2J"])
def test_names_that_cannot_be_signed(name: str) -> None:
    with pytest.raises(UserError, match="cannot be signed"):
        certificate(name, PAIRS[0])


# -- the roster ----------------------------------------------------------------------------------------------


def test_only_the_authority_enrols_and_only_for_its_cluster() -> None:
    stranger = KeyPair.new()
    assert "may not enrol" in roster().take(certificate("web-1", PAIRS[0], by=stranger))
    assert "may not enrol" in roster().take(certificate("web-1", PAIRS[0], by=PAIRS[0]))
    assert "for cluster 'other'" in roster().take(certificate("web-1", PAIRS[0], cluster="other"))
    admin = certificate("ada", PAIRS[1], "person", roles=("admin",))
    assert "may not enrol" in roster(admin).take(certificate("web-1", PAIRS[0], by=PAIRS[1]))
    agent = certificate("web-1", PAIRS[0])
    assert "may not enrol" in roster(agent).take(certificate("web-2", PAIRS[1], by=PAIRS[0]))


def test_a_connection_is_known_by_its_curve_key_until_it_expires() -> None:
    known = roster(certificate("web-1", PAIRS[0]))
    found = known.connected(PAIRS[0].curve.public, 999.5)
    assert found is not None
    assert found.name == "web-1"
    assert known.connected(PAIRS[0].curve.public, 1_000) is None
    assert known.connected(PAIRS[1].curve.public, 0) is None


def test_a_newer_certificate_replaces_an_older_one_and_its_key() -> None:
    old, new = certificate("web-1", PAIRS[0]), certificate("web-1", PAIRS[1], issued=101)
    known = roster(old, new)
    assert known.connected(PAIRS[0].curve.public, 0) is None
    assert known.connected(PAIRS[1].curve.public, 0) is not None
    assert known.take(old) == ""  # known already, and nothing changes
    assert known.connected(PAIRS[0].curve.public, 0) is None
    assert "newer certificate" in roster(new).take(old)


def test_a_key_that_was_replaced_does_not_come_back_when_its_successor_is_revoked() -> None:
    known = roster(certificate("web-1", PAIRS[1], issued=101), revocation(PAIRS[1]))
    assert "newer certificate" in known.take(certificate("web-1", PAIRS[0]))
    assert known.take(certificate("web-1", PAIRS[2], issued=102)) == ""


def test_a_key_is_of_one_name_and_kind() -> None:
    known = roster(certificate("web-1", PAIRS[0]))
    assert "is web-1's" in known.take(certificate("web-2", PAIRS[0]))
    assert "is web-1's" in known.take(certificate("web-1", PAIRS[0], "person"))
    assert known.take(certificate("web-1", PAIRS[0], issued=200, expires=2_000)) == ""


def test_the_negative_of_a_key_neither_takes_its_connections_nor_brings_it_back() -> None:
    other = negative(PAIRS[0].public)
    assert other != PAIRS[0].public
    assert curve_public(other) == PAIRS[0].curve.public
    known = roster(certificate("web-1", PAIRS[0]))
    assert "is web-1's" in known.take(certificate("web-2", other))
    found = known.connected(PAIRS[0].curve.public, 0)
    assert found is not None
    assert found.name == "web-1"
    assert roster(revocation(PAIRS[0])).take(certificate("web-1", other)) == "that key was revoked"
    gone = roster(certificate("web-1", PAIRS[0]), revocation(other))
    assert gone.connected(PAIRS[0].curve.public, 0) is None


def test_a_key_of_small_order_is_refused() -> None:
    for key in (bytes(32), b"\x01" + bytes(31), b"\xff" * 32):
        assert "not a public key" in roster().take(certificate("web-1", key))


def test_who_may_revoke() -> None:
    agent = certificate("web-1", PAIRS[0])
    reader = certificate("bob", PAIRS[1], "person", roles=("read", "tap", "write", "code"))
    admin = certificate("ada", PAIRS[2], "person", roles=("admin",))
    token = certificate("t", PAIRS[3], "token", uses=3)
    known = roster(agent, reader, admin, token)
    for pair in (PAIRS[0], PAIRS[1], PAIRS[3], KeyPair.new()):
        assert "may not revoke" in known.take(revocation(PAIRS[0], pair))
    assert "for cluster" in known.take(revocation(PAIRS[0], cluster="other"))
    assert known.take(revocation(PAIRS[0], PAIRS[2])) == ""
    assert known.connected(PAIRS[0].curve.public, 0) is None
    assert known.revoked(PAIRS[0].public)
    assert "was revoked" in known.take(certificate("web-1", PAIRS[0], issued=900))


def test_a_revoked_admin_revokes_nobody() -> None:
    admin = certificate("ada", PAIRS[2], "person", roles=("admin",))
    known = roster(certificate("web-1", PAIRS[0]), admin, revocation(PAIRS[2]))
    assert "may not revoke" in known.take(revocation(PAIRS[0], PAIRS[2]))


def test_an_admin_whose_certificate_does_not_hold_then_revokes_nobody() -> None:
    web = certificate("web-1", PAIRS[0])
    for issued, expires in ((100, 200), (201, 1_000)):
        admin = certificate("ada", PAIRS[2], "person", roles=("admin",), issued=issued, expires=expires)
        assert "may not revoke" in roster(web, admin).take(revocation(PAIRS[0], PAIRS[2]))


def test_what_an_admin_or_a_token_signed_long_ago_is_not_let_in() -> None:
    host = certificate("web-1", PAIRS[0], by=PAIRS[5], issued=1_000, expires=9_000)
    for signed, at in ((host, 1_000), (revocation(PAIRS[0], PAIRS[2]), 200)):
        assert not stale(signed, AUTHORITY.public, (at + SKEW_S) * 1_000)
        for off in (SKEW_S + 1, -SKEW_S - 1):
            assert "is the clock" in stale(signed, AUTHORITY.public, (at + off) * 1_000)
    assert not stale(revocation(PAIRS[0]), AUTHORITY.public, 10**12)


# -- tokens --------------------------------------------------------------------------------------------------


def test_a_token_enrols_as_many_hosts_as_it_says() -> None:
    known = roster(TOKEN)
    for n in range(2):
        assert known.take(certificate(f"web-{n}", PAIRS[n], by=PAIRS[5])) == ""
    assert "is used up" in known.take(certificate("web-2", PAIRS[2], by=PAIRS[5]))
    assert [c.name for c in known if c.kind == "agent"] == ["web-0", "web-1"]


@pytest.mark.parametrize(
    ("signed", "why"),
    [
        (certificate("web-1", PAIRS[0], by=PAIRS[5], issued=500), "does not hold at that time"),
        (certificate("web-1", PAIRS[0], by=PAIRS[5], issued=99), "does not hold at that time"),
        (certificate("eve", PAIRS[0], "person", by=PAIRS[5], roles=("admin",)), "enrols agents only"),
        (certificate("t2", PAIRS[0], "token", by=PAIRS[5], uses=9), "enrols agents only"),
        (certificate("web-1", PAIRS[0], by=PAIRS[5], roles=("admin",)), "enrols agents only"),
        (certificate("web-1", PAIRS[0], by=PAIRS[5], expires=101 + TOKEN_SECONDS_MAX), "366 days at most"),
        (revocation(PAIRS[1], PAIRS[5]), "may not revoke"),
    ],
)
def test_what_a_token_may_not(signed: Signed, why: str) -> None:
    known = roster(TOKEN)
    assert why in known.take(signed)
    assert len(list(known)) == 1


def test_a_token_does_not_replace_a_host_even_one_that_was_revoked() -> None:
    web = certificate("web-1", PAIRS[0])
    again = certificate("web-1", PAIRS[1], by=PAIRS[5], issued=101)
    assert "does not replace it" in roster(TOKEN, web).take(again)
    assert "does not replace it" in roster(TOKEN, web, revocation(PAIRS[0])).take(again)


def test_a_revoked_token_enrols_nobody() -> None:
    known = roster(TOKEN, revocation(PAIRS[5]))
    assert "may not enrol" in known.take(certificate("web-1", PAIRS[0], by=PAIRS[5]))


def test_what_is_taken_twice_counts_once() -> None:
    host = certificate("web-0", PAIRS[0], by=PAIRS[5])
    known = roster(TOKEN, host, host, host)
    assert known.take(certificate("web-1", PAIRS[1], by=PAIRS[5])) == ""


# -- properties ----------------------------------------------------------------------------------------------

SIGNERS = [AUTHORITY, *PAIRS]
ENTRIES = st.one_of(
    st.builds(
        certificate,
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([*PAIRS, *(negative(pair.public) for pair in PAIRS)]),
        st.sampled_from(["agent", "person", "token"]),
        by=st.sampled_from([AUTHORITY, *SIGNERS]),
        issued=st.integers(1, 4),
        roles=st.sampled_from([(), ("admin",)]),
        uses=st.integers(0, 2),
    ),
    st.builds(revocation, st.sampled_from(PAIRS), st.sampled_from(SIGNERS)),
)


@settings(max_examples=60)
@given(st.lists(ENTRIES, max_size=14))
def test_the_same_entries_give_the_same_roster_and_a_revoked_key_never_comes_back(
    entries: list[Signed],
) -> None:
    first, second = Roster(SHOP, AUTHORITY.public), Roster(SHOP, AUTHORITY.public)
    revoked: set[bytes] = set()
    for entry in entries:
        why = first.refusal(entry)
        told = "" if first.has(entry) else why
        assert first.take(entry) == told == second.take(entry)
        what = entry.opened()
        if not told and isinstance(what, Revocation):
            revoked.add(curve_public(what.key))
        assert not [c for c in first if curve_public(c.key) in revoked]
        names = [(c.kind, c.name) for c in first]
        curves = [curve_public(c.key) for c in first]
        assert len(set(names)) == len(names)
        assert len(set(curves)) == len(curves)
        assert all(first.connected(curve_public(c.key), 0) == c == first.named(c.kind, c.name) for c in first)
    again = Roster(SHOP, AUTHORITY.public, first.signed)
    assert list(first) == list(second) == list(again)
    assert again.signed == first.signed


# -- files ---------------------------------------------------------------------------------------------------


SERVER = ServerKeys(curve_of_secret(b"f" * 32).public)


def identity(pair: KeyPair) -> folder.Identity:
    signed = certificate("web-1", pair)
    return folder.Identity(SHOP, AUTHORITY.public, signed, SERVER, seal(pair.public, b"f" * 32))


def test_keys_are_written_and_loaded(tmp_path: Path) -> None:
    at = tmp_path / "keys"
    pair = folder.make_pair(at / folder.KEY_FILE)
    folder.write_json(at / folder.IDENTITY_FILE, identity(pair))
    keys = folder.load(at)
    assert keys.pair.public == pair.public
    assert keys.fleet.secret == b"f" * 32
    assert [one.name for one in keys.roster()] == ["web-1"]
    assert {path.stat().st_mode & 0o777 for path in at.iterdir()} == {0o600}
    assert at.stat().st_mode & 0o777 == 0o700
    assert folder.make_pair(at / folder.KEY_FILE).public == pair.public


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o660, 0o644, 0o610])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    folder.make_pair(file)
    file.chmod(mode)
    with pytest.raises(UserError, match="can be read by others: chmod 600"):
        folder.load_pair(file)


def test_what_is_no_usable_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir(mode=0o700)
    (tmp_path / "bad").write_text("{")
    (tmp_path / "bad").chmod(0o600)
    for name, why in (
        ("dir", "cannot be read: (?i:is a directory)"),
        ("none", "cannot be read: (?i:no such file)"),
        ("bad", "is no key"),
    ):
        with pytest.raises(UserError, match=why):
            folder.load_pair(tmp_path / name)
    with pytest.raises(UserError, match="is damaged"):
        folder.read_json(tmp_path / "bad", folder.Identity)
    with pytest.raises(UserError, match="cannot be written"):
        write(tmp_path / "bad" / "below", b"")


def test_keys_of_two_owners_do_not_mix(tmp_path: Path) -> None:
    folder.make_pair(tmp_path / folder.KEY_FILE)
    folder.write_json(tmp_path / folder.IDENTITY_FILE, identity(PAIRS[0]))
    with pytest.raises(UserError, match="the certificate is for another key"):
        folder.load(tmp_path)


def test_a_person_has_no_key_of_the_fleet() -> None:
    signed = certificate("ada", PAIRS[0], "person")
    keys = folder.Keys(PAIRS[0], folder.Identity(SHOP, AUTHORITY.public, signed, SERVER))
    with pytest.raises(UserError, match="the keys of the person ada, not an agent's"):
        _ = keys.fleet


def test_who_make_a_key_at_once_get_the_same_one(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(lambda _: folder.make_pair(tmp_path / "key").public, range(8)))
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_pipe_in_place_of_a_key_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(UserError, match="is no file"):
        folder.load_pair(tmp_path / "key")
