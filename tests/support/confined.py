"""Users' code runs where it can be confined, else nowhere: there tests of it are skipped, with the reason."""

from __future__ import annotations

import pytest

from elf.functions.confinement import lacking

WHY_NOT = lacking()
needs_confinement = pytest.mark.skipif(bool(WHY_NOT), reason=f"users' code cannot be confined: {WHY_NOT}")
