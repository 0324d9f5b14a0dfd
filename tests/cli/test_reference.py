"""The reference page is what the code makes, and each of its examples runs."""

from __future__ import annotations

from elf.ql.catalogue import catalogue
from lab import reference


def test_the_page_is_what_the_code_makes() -> None:
    """Also the answers below the examples, which it runs. ``make docs`` renews it."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page() + "\n"


def test_everything_is_on_it() -> None:
    text = reference.PAGE.read_text(encoding="utf-8")
    assert all(
        f"`{entry.usage.replace('|', chr(92) + '|') if entry.what != 'clause' else entry.usage}`" in text
        for entry in catalogue()
    )
    assert all(queries for queries in reference.EXAMPLES.values())
