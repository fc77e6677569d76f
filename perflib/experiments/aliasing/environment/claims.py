"""What ``alias_environment`` can claim."""

from __future__ import annotations

from perflib.experiments.aliasing.alone import beside_sibling
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)

ENVIRONMENT = _CLAIMS["environment"]

ENVIRONMENT_SHARED = beside_sibling(ENVIRONMENT)

SIMULATED = _CLAIMS["simulated"]
LINK_ORDER = _CLAIMS["link_order"]
ALIASED_ORDERS = _CLAIMS["aliased_orders"]
ASLR = _CLAIMS["aslr"]

CLAIMS = (ENVIRONMENT, ENVIRONMENT_SHARED, SIMULATED, LINK_ORDER, ALIASED_ORDERS, ASLR)
"""The claims, in the order in which they are made."""
