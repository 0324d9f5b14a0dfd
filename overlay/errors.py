"""Errors of the overlay, named by who must act on them."""

from __future__ import annotations


class OverlayError(Exception):
    """Base of every error that the overlay raises on purpose."""


class NotRoot(OverlayError):
    """The caller asked for something that only the root of a topic may do."""


class OverlayBug(OverlayError):
    """An invariant of the overlay itself is broken. Never to be swallowed; carries the node's last events."""
