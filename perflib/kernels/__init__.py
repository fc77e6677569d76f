"""C kernels: compiled on demand, cached for the user alone, loaded through cffi.

``kernels_c/NAME.c`` (or in ``readers``, ``tools``) begins with a comment whose last part, after a
line ``@kernel``, is TOML:

    flags = ["-O2"]              the compiler's flags, and no others
    link = ["-lm"]               the linker's flags
    copied = "NAME_part.inc"     C whose machine code is repeated ``copies`` times (see copies.py)
    bundle = ["program"]         what 'perflib build' makes: "library" (unless said), "program"
    fixed = true                 no level of the architecture (levels.py) adds a flag: these
                                 instructions are what is measured
    [define]
    SIZE = 64                    preprocessor definitions, with the values that ``define`` replaces
    [variants.slow]              a second variant of the same source
    flags = ["-O0"]
    [variants.part]              an object: the variant "part+other" is a program linked of two,
    flags = ["-O0", "-c"]        in that order
    bundle = ["object"]          a bundle has every order of them
    [variants.large.pieces]      more C of this variant, one object for each of
    file = "NAME_piece.inc"      ``count`` numbers (PIECE), compiled side by side
    count = 64                   and linked behind the kernel in that order
    flags = ["-O1"]

The declarations between ``// @interface`` and ``// @end`` are C for the compiler and cffi alike,
so an interface stands in one place. cffi's out-of-line ABI mode parses them once; afterwards
loading costs a ``dlopen``. No flag of the Python build and no environment variable (CFLAGS,
CPATH ...) reaches the compiler: the source, the flags and the compiler decide, and are the key.

Where ``PERFLIB_KERNELS`` names a bundle (bundle.py), kernels come from there, and no compiler is
needed; its level of the architecture adds one flag to those that are declared (levels.py).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perflib.kernels.bundle import active
from perflib.kernels.cache import Build, compiled
from perflib.kernels.compiling import compiler
from perflib.kernels.levels import BASELINE
from perflib.kernels.records import open_interface, record
from perflib.kernels.sources import BASE_FLAGS, Source, names, request, source
from perflib.model.errors import PerflibError, UserError

__all__ = [
    "BASE_FLAGS",
    "Build",
    "Kernel",
    "Source",
    "build",
    "compiler",
    "load",
    "names",
    "open_library",
    "opened",
    "record",
    "source",
    "unavailable",
]


@dataclass(frozen=True)
class Kernel:
    """A loaded kernel: ``kernel.lib.function(...)``, with cffi's ``ffi``."""

    build: Build
    lib: Any
    ffi: Any


def build(
    name: str,
    *,
    variant: str | None = None,
    copies: int | None = None,
    define: Mapping[str, int] | None = None,
    executable: bool = False,
) -> Build:
    """Compile a kernel, or find it compiled: in the bundle that is used, or in the cache.

    Parameters
    ----------
    name
        The kernel: a file of ``kernels_c``.
    variant
        One of the variants that the kernel declares; ``a+b`` is the program linked of two objects.
    copies
        How often the code of the kernel's ``copied`` file stands in the library; only for a kernel
        that declares one.
    define
        Values of preprocessor definitions that the kernel declares, such as the number of its
        functions; the others keep the value they are declared with.
    executable
        A program instead of a library (``PERFLIB_MAIN`` is defined for its ``main``).

    Raises
    ------
    UserError
        No such kernel, variant or definition, a definition that is no positive whole number, no
        compiler, a bundle that does not fit, or a cache that is not the user's own.
    MeasurementError
        The compiler refused the source; its own words are in the message.
    """
    wanted = request(name, variant, copies, define, executable)
    bundle = active()
    if bundle is None:
        return compiled(wanted, BASELINE)
    if found := bundle.find(wanted):
        return found
    try:
        compiler()
    except UserError:
        raise bundle.without(wanted) from None
    built = compiled(wanted, bundle.level)
    built.provenance["bundle"] = bundle.mark(compiled_here=True)
    return built


def unavailable(name: str) -> str:
    """Why a kernel is not available here, without compiling it; empty where it is."""
    try:
        wanted, bundle = request(name), active()
        if bundle is None or bundle.find(wanted) is None:
            compiler()
    except PerflibError as error:
        return str(error)
    return ""


# --- loading -----------------------------------------------------------------------------------


@functools.cache  # and so kept: a function of a library that was let go would crash
def open_library(library: str, module: str) -> tuple[Any, Any]:
    """``(lib, ffi)`` of a build; all that a worker needs, without the compiler's side."""
    ffi = open_interface(module)
    return ffi.dlopen(library), ffi


def opened(built: Build) -> Kernel:
    """Load a library into *this* process."""
    lib, ffi = open_library(str(built.library), str(built.module))
    return Kernel(built, lib, ffi)


def load(
    name: str,
    *,
    variant: str | None = None,
    copies: int | None = None,
    define: Mapping[str, int] | None = None,
) -> Kernel:
    """Compile (or find) and load a kernel into *this* process.

    For tools and tests. What is measured runs in a worker process: see ``perflib.measure``.

    >>> load("probe").lib.probe_answer()  # doctest: +SKIP
    42
    """
    return opened(build(name, variant=variant, copies=copies, define=define))
