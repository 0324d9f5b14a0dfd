"""Sockets of libzmq's own, for what no transport of ours would say."""

from __future__ import annotations

import zmq
from zmq.utils import z85

from elf.security.loopback import loopback_file, read_loopback


def with_this_machines_key(socket: zmq.Socket[bytes]) -> None:
    """Before it connects: it is let in like any process of this user."""
    key = read_loopback(loopback_file())
    socket.curve_serverkey = z85.encode(key.server)
    socket.curve_publickey = z85.encode(key.own.public)
    socket.curve_secretkey = z85.encode(key.own.secret)
