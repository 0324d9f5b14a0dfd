"""Apache's and nginx's ``combined``: the common log format with referer and user agent."""

from agents.formats.access import AccessLog

COMBINED = AccessLog("combined", combined=True)
