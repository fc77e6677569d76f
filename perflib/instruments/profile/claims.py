"""What can be claimed of profiles: of two that are compared, and of functions' entries.

``core`` names the core where several are compared with one; else it is empty.
"""

from __future__ import annotations

from perflib.model.claim import read_claims

_CLAIMS = read_claims(__file__)
LONGER = _CLAIMS["longer"]
STANDS_OUT = _CLAIMS["stands_out"]
FUNCTION = _CLAIMS["function"]
INSTRUCTIONS = _CLAIMS["instructions"]
INSTRUCTION = _CLAIMS["instruction"]
ENTRY = _CLAIMS["entry"]
CONTROL = _CLAIMS["entry_control"]
FUNCTION_ENTRY = _CLAIMS["function_entry"]
