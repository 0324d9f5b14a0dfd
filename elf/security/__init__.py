"""Who is who, and who may what: keys, certificates, the roster.

``keys``: the key pair of a host or a person. ``certificates``: what the authority of a cluster signs.
``roster``: whose certificates hold, as the catalog log says. ``folder``: all of it in files.

Everything but ``folder`` is pure. PyNaCl (libsodium) does the cryptography; ZeroMQ's CURVE, which uses the
same library's primitives, encrypts and authenticates connections (``elf.transport``).
"""
