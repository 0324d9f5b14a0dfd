"""A log with the keys of two people, and what they sign."""

from __future__ import annotations

from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.messages.log import ChangeRoster
from elf.schema import Column, Schema
from elf.security.authored import Authorship, digests_of
from elf.security.authorship import author
from elf.security.certificates import Signed
from elf.security.keys import KeyPair
from elf.security.roster import Trust
from tests.support.certified import AUTHORITY, PAIRS, SHOP, certificate

TRUST = Trust(SHOP, AUTHORITY.public)
ADA, BOB, HOST, ROOT = PAIRS[:4]
ROSTER = (
    certificate("ada", ADA, "person", roles=("write", "code")),
    certificate("bob", BOB, "person", roles=("read", "write")),
    certificate("web-1", HOST),
    certificate("root", ROOT, "person", roles=("admin",)),
)
SCHEMA = Schema((Column("ts", "timestamp"), Column("n", "bigint"), Column("host", "text")), "ts")


def log_with(*signed: Signed) -> CatalogLog:
    log = CatalogLog(trust=TRUST)
    for one in (*ROSTER, *signed):
        grow(log, ChangeRoster(signed=one))
    return log


def said(
    text: str, by: KeyPair = ADA, files: tuple[tuple[str, str], ...] = (), cluster: str = SHOP
) -> Authorship:
    digests = digests_of(files)
    return Authorship(text, digests, author(by, cluster, text, digests, 1_000.0))
