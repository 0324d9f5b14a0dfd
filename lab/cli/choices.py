"""The values that options may have."""

from __future__ import annotations

from enum import StrEnum


class BenchFormat(StrEnum):
    """``elf bench ingest --format``"""

    JSON = "json"
    COMBINED = "combined"
    COMMON = "common"


class LogKind(StrEnum):
    """``elf generate KIND``"""

    CLICKS = "clicks"
    ACCESS = "access"
    POSTS = "posts"


class BenchKeys(StrEnum):
    """``elf bench cbt --keys``"""

    ZIPF = "zipf"
    UNIFORM = "uniform"
    UNIQUE = "unique"


class BenchQuery(StrEnum):
    """``elf bench peers --query``"""

    INGEST = "ingest"
    SLIDING = "sliding"


class Detect(StrEnum):
    """``elf bench failover --detect``, and an agent's ``cluster.detect``"""

    DEFAULT = "default"
    FAST = "fast"


class Strike(StrEnum):
    """``elf bench failover --by``"""

    KILL = "kill"
    TERM = "term"
    STOP = "stop"


class Lifetimes(StrEnum):
    """``elf sim overlay --lifetimes``"""

    WEIBULL = "weibull"
    PARETO = "pareto"
    EXPONENTIAL = "exponential"


class RotationWriter(StrEnum):
    """``elf bench rotation --writer``"""

    NGINX = "nginx"
    PYTHON = "python"
