"""What C fills for a test, and calls of code_segment.c's interface, which kernels share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.kernels import Kernel, record


def room(kernel: Kernel, struct: str, count: int = 1) -> tuple[NDArray[Any], Any]:
    """Records of a C struct, and their place for the call that fills them."""
    made = np.zeros(count, record(kernel.build, struct))
    return made, kernel.ffi.from_buffer(f"{struct}[]", made, require_writable=True)


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
    """Where the range that was placed begins and ends."""
    span = kernel.ffi.new("uint64_t[2]")
    assert kernel.lib.code_lay(pattern, n, backing, seed, span) == 0
    return span[0], span[1]


def run(kernel: Kernel, warm: int, steps: int, samples: int = 1) -> list[SimpleNamespace]:
    out = kernel.ffi.new("code_sample[]", samples)
    assert kernel.lib.code_run(warm, steps, samples, out) == 0
    return [values(kernel.ffi, one) for one in out]
