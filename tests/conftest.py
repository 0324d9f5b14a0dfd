"""What holds for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Examples are bounded in number, not in time: a busy machine must not fail a property.
settings.register_profile("elf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elf")
