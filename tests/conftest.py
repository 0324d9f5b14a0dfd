"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# Examples are bounded in number, not in time: a busy machine must not fail a property.
settings.register_profile("elf", deadline=None)
settings.load_profile("elf")
