"""A stream's lines on their way into panes: read, parsed by DuckDB, mapped, archived, rejected."""
