"""How a configuration is declared, read and explained.

From one declaration (frozen dataclasses, ``declare``) come the reader (``tree``: YAML file, then
environment), the error messages, and the commented example file. Rules: every
problem is one line that says where (file and line, or variable), which key, and what would be right; all
problems are reported together. It must never know a setting by name: those are in ``agents.config``.
"""
