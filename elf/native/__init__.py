"""What is quicker in C: plain lines to typed columns, and rows to groups, over Arrow's buffers.

Lines: the SQL of a format (``agents.formats``) is the definition; what is here gives the same values for the
lines that it decides, and says of every other line that it is left to the SQL. Groups: the hash of keys
(``elf.keys``), and what the buffer tree does with rows (``elf.cbt``), both of which numpy can do too. And how
large a stream of Arrow's becomes (``elf.ipcsize``).

``native.h`` says how the C part and this one speak; it allocates nothing and is called without the GIL.

The library is built when elf is installed, if there is a C compiler. Without it ``library`` is None and
everything works, slower. ``ELF_NATIVE=off`` in the environment does the same.
"""

from elf.native.binding import library, why_not
from elf.native.columns import merged, starts_of, taken
from elf.native.hashing import hash_mix, hash_texts, hash_words
from elf.native.reading import AccessReader, Field, JsonReader, Read, Reader
from elf.native.splitting import split
from elf.native.table import CAPACITY, KEY, GroupTable, how_of

__all__ = [
    "CAPACITY",
    "KEY",
    "AccessReader",
    "Field",
    "GroupTable",
    "JsonReader",
    "Read",
    "Reader",
    "hash_mix",
    "hash_texts",
    "hash_words",
    "how_of",
    "library",
    "merged",
    "split",
    "starts_of",
    "taken",
    "why_not",
]
