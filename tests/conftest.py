"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Spark's queries in tests are small: compiling its bytecode thoroughly would take longer than running it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Examples are bounded in number, not in time: a busy machine must not fail a property.
settings.register_profile("elf", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elf")
