"""Tables of this host in which functions of queries look texts up: where an address is (``geoip``), what a
user agent is (``useragents``).

``LOOKUPS`` has those of the process. They are opened at its start, and databases again when their files have
changed (``renewed``): a batch of values is of one edition, and ``told`` says which ones are here. Each
different value of a batch is looked up once, and the last ones are remembered. A value that is not in a table
is NULL, and nothing here fails on data.

It must never answer without a table as if there were one: ``lacking`` says what is missing, and whoever runs
a map asks it first.
"""

from agents.lookups.tables import LOOKUPS, Lookups, Value

__all__ = ["LOOKUPS", "Lookups", "Value"]
