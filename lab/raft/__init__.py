"""Raft groups on virtual time: disks, judges, mass kills."""
