"""The commands of the laboratory: ``elf bench``, ``elf sim`` and ``elf generate``."""
