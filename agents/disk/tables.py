"""The tables of an agent's store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agents.disk import hardstate, tablerows

SCHEMA_VERSION: Final = 14
APPLICATION_ID: Final = 0x656C6631
"""``elf1``: tells our files from other programs' SQLite files."""

COSTS: Final = "CREATE TABLE costs (job TEXT PRIMARY KEY, learned BLOB NOT NULL) WITHOUT ROWID;"
"""What was learned of jobs (``elf.planning.costs``)."""
POSTPONED: Final = """
CREATE TABLE postponed (
  stream TEXT NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (stream, number)) WITHOUT ROWID;
"""
"""Rows that wait for a turn (``elf.job.worker.turns``)."""
SCHEMA: Final = (
    """
CREATE TABLE facts (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE cuts (stream TEXT PRIMARY KEY, cut BLOB NOT NULL);
CREATE TABLE snapshots (
  flow TEXT NOT NULL, pane_start INTEGER NOT NULL, pane_end INTEGER NOT NULL, part INTEGER NOT NULL,
  counters BLOB NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (flow, pane_start, pane_end, part));
CREATE TABLE pane_commits (
  flow TEXT NOT NULL, pane_start INTEGER NOT NULL, pane_end INTEGER NOT NULL, revision INTEGER NOT NULL,
  members BLOB NOT NULL, roster_version INTEGER NOT NULL, counters BLOB NOT NULL, payload BLOB NOT NULL,
  seq INTEGER NOT NULL DEFAULT 0, raw BLOB NOT NULL DEFAULT x'',
  PRIMARY KEY (flow, pane_start, pane_end, revision));
CREATE INDEX pane_commits_by_seq ON pane_commits (flow, seq);
CREATE TABLE pane_parts (
  flow TEXT NOT NULL, pane INTEGER NOT NULL, revision INTEGER NOT NULL, parts BLOB NOT NULL,
  PRIMARY KEY (flow, pane, revision)) WITHOUT ROWID;
CREATE TABLE flows (uid TEXT PRIMARY KEY, first_pane INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE jobs (uid TEXT PRIMARY KEY, record BLOB NOT NULL, state TEXT NOT NULL);
CREATE TABLE outputs (
  job TEXT NOT NULL, output TEXT NOT NULL, number INTEGER NOT NULL, kept BLOB NOT NULL,
  PRIMARY KEY (job, output)) WITHOUT ROWID;
CREATE TABLE window_commits (
  job TEXT NOT NULL, first_start INTEGER NOT NULL, last_end INTEGER NOT NULL, revision INTEGER NOT NULL,
  version INTEGER NOT NULL, provisional INTEGER NOT NULL,
  status BLOB NOT NULL, "rows" BLOB NOT NULL, panes_used BLOB NOT NULL, seq INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job, first_start, last_end, revision, version, provisional));
CREATE INDEX window_commits_by_end ON window_commits (job, last_end, revision);
CREATE INDEX window_commits_by_seq ON window_commits (job, seq);
CREATE TABLE traced (
  number INTEGER PRIMARY KEY, flow TEXT NOT NULL, pane_start INTEGER NOT NULL, pane_end INTEGER NOT NULL,
  part INTEGER NOT NULL, panes BLOB NOT NULL, UNIQUE (flow, pane_start, part));
CREATE TABLE joined (
  stream TEXT NOT NULL, digest TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (stream, digest)) WITHOUT ROWID;
CREATE TABLE programs (uid TEXT PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE masters (
  uid TEXT PRIMARY KEY, bootstrapped BLOB NOT NULL, number INTEGER NOT NULL, checkpoint BLOB NOT NULL);
CREATE TABLE log (seq INTEGER PRIMARY KEY, entry BLOB NOT NULL);
CREATE TABLE replicas (
  flow TEXT NOT NULL, member INTEGER NOT NULL, pane_start INTEGER NOT NULL, pane_end INTEGER NOT NULL,
  part INTEGER NOT NULL, counters BLOB NOT NULL, payload BLOB NOT NULL, checksum INTEGER NOT NULL,
  PRIMARY KEY (flow, member, pane_start, pane_end, part));
"""
    + hardstate.SCHEMA
    + tablerows.SCHEMA
    + COSTS
    + POSTPONED
)

STEPS: Final[Mapping[int, str]] = {13: tablerows.SCHEMA + COSTS + POSTPONED}
"""What makes the next version of a file of each older one."""
