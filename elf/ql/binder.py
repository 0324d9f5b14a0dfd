"""From a parsed expression to a bound one: every name is a column, every value has a type, every call is
known.

One bound expression a call, no state: ``scope.bind(node)``. A node that is not in ``BINDERS`` is refused by
name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from elf.ql.bind_aggregates import FILTERS
from elf.ql.bind_calls import CALLS
from elf.ql.bind_names import NAMES
from elf.ql.bind_operators import OPERATORS
from elf.ql.bind_over import OVERS
from elf.ql.expressions import Expr

BINDERS: Final[Mapping[type[exp.Expr], Callable[..., Expr]]] = MappingProxyType(
    {**NAMES, **OPERATORS, **CALLS, **FILTERS, **OVERS}
)
"""Everything that an expression may consist of."""
