"""elf: decentralised, many-masters stream processing for the live logs of web servers."""

__version__ = "0.1.0"
