"""What ``layout`` can claim."""

from __future__ import annotations

from perflib.instruments.profile.claims import FUNCTION, STANDS_OUT
from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__, {**STANDS_OUT.reasons, **FUNCTION.reasons})

MOVES = _CLAIMS["layout_moves"]
ALONE = _CLAIMS["layout_alone"]
DRAWS = _CLAIMS["draws_scatter"]
OUTPUT = _CLAIMS["output_same"]
FASTER = _CLAIMS["faster"]
GATE = _CLAIMS["gate"]
OUTPUTS = _CLAIMS["outputs"]
FUNCTIONS = _CLAIMS["functions"]
ONE_FUNCTION = _CLAIMS["one_function"]
CHANGED_CODE = _CLAIMS["changed_code"]

CLAIMS = (
    GATE, FASTER, FUNCTIONS, ONE_FUNCTION, CHANGED_CODE, OUTPUTS, ALONE, MOVES, DRAWS, OUTPUT,
)  # fmt: skip
"""The claims, in the order in which they are made."""
