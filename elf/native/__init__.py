"""Lines to typed columns in C, where their meaning is plain: the quick way beside DuckDB's SQL.

The SQL of a format (``agents.formats``) is the definition; what is here gives the same values for the lines
that it decides, and says of every other line that it is left to the SQL. ``native.h`` says how the C
part and this one speak; it allocates nothing and is called without the GIL.

The library is built when elf is installed, if there is a C compiler. Without it ``library`` is None and
everything works, slower. ``ELF_NATIVE=off`` in the environment does the same.
"""

from elf.native.binding import library, why_not
from elf.native.reading import AccessReader, Field, JsonReader, Read, Reader
from elf.native.splitting import split

__all__ = ["AccessReader", "Field", "JsonReader", "Read", "Reader", "library", "split", "why_not"]
