"""The common log format."""

from agents.formats.access import AccessLog

COMMON = AccessLog("common", combined=False)
