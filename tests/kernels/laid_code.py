"""Calls of code_segment.c's interface, which kernels of much code share, and what they report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from perflib.kernels import Kernel


def values(ffi: Any, struct: Any) -> SimpleNamespace:
    """The fields of a C struct, which outlive it."""
    found = {name: getattr(struct, name) for name, _ in ffi.typeof(struct).fields}
    structs = {name for name, field in ffi.typeof(struct).fields if field.type.kind == "struct"}
    return SimpleNamespace(**found | {name: values(ffi, found[name]) for name in structs})


def bounds(kernel: Kernel) -> list[int]:
    """Numbers, sizes and places of the units of code, see code_units.h."""
    out = kernel.ffi.new("int64_t[10]")
    assert kernel.lib.code_bounds(out) == 0
    return list(out)


def lay(kernel: Kernel, pattern: int, n: int, backing: int, seed: int = 1) -> tuple[int, int]:
    """Where the range that was laid begins and ends."""
    span = kernel.ffi.new("uint64_t[2]")
    assert kernel.lib.code_lay(pattern, n, backing, seed, span) == 0
    return span[0], span[1]


def run(kernel: Kernel, warm: int, steps: int, samples: int = 1) -> list[SimpleNamespace]:
    out = kernel.ffi.new("code_sample[]", samples)
    assert kernel.lib.code_run(warm, steps, samples, out) == 0
    return [values(kernel.ffi, one) for one in out]
