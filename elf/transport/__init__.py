"""How frames get from one agent to another: one interface, over ZeroMQ between processes and over memory
within one.

``Transport`` says what every transport promises; ``tests/agents/test_transport.py`` holds both to it.
Transports move frames and know nothing of what is in them: ``elf.wire.frames`` does.
"""

from __future__ import annotations

from elf.transport.base import Closed, Counters, Limits, Transport
from elf.transport.memory import MemoryNetwork, MemoryTransport
from elf.transport.zeromq import ZeroMqTransport

__all__ = ["Closed", "Counters", "Limits", "MemoryNetwork", "MemoryTransport", "Transport", "ZeroMqTransport"]
