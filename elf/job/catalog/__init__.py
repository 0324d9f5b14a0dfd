"""The catalog log: who is expected in which stream, which jobs there are; following and keeping it."""
