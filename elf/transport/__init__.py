"""How frames get from one agent to another: one interface, over ZeroMQ between processes and over memory
within one.

``Transport`` says what every transport promises; ``tests/agents/test_transport.py`` holds both to it.
Transports move frames and know nothing of what is in them: ``elf.wire.frames`` does.
"""
