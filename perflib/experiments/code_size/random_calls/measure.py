"""How random calls are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perflib.experiments.code_size import measure
from perflib.experiments.code_size.measure import Sweep
from perflib.experiments.code_size.random_calls import RandomCallsParams
from perflib.framework.experiment import Session
from perflib.kernels import build


def sweep(params: RandomCallsParams) -> Sweep:
    """The kernel with as many functions."""
    define = {"FUNCTIONS": params.functions, "FUNCTION_BYTES": params.function_bytes}
    return Sweep(build("random_calls", define=define), ("random",))


def plan(params: RandomCallsParams) -> dict[str, Any]:
    """See ``code_size.measure``."""
    return measure.plan(sweep(params), params)


def pilot(params: RandomCallsParams, plan: Mapping[str, Any]) -> dict[str, Any]:
    """See ``code_size.measure``."""
    return measure.pilot(sweep(params), params, plan)


def take(params: RandomCallsParams, session: Session) -> str:
    """See ``code_size.measure``."""
    return measure.take(sweep(params), params, session)
