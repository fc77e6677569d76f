"""What the columns of texts in JSON hold, in a table of the thread experiment."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

_MAX_THREADS = 2**16
_Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]


class _LockWaits(BaseModel):
    kind: str
    waits: Annotated[int, Field(ge=0, le=10**15)]
    waiting_s: _Seconds
    ready_s: _Seconds
    gain_s: _Seconds = 0.0


class _SelfReported(BaseModel):
    point: str
    waiting_s: _Seconds = 0.0


BY_LOCK = dict[str, _LockWaits]
SELF_REPORT = dict[str, _SelfReported]
HISTOGRAM = Annotated[list[_Seconds], Field(max_length=_MAX_THREADS)]
