"""The native reader against DuckDB's SQL, which says what each line means: the same lines, drawn and spoilt,
through both."""
