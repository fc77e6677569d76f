"""Open one library and say, as JSON, whether it is a BLAS: ``python -m ...blas_probe PATH``.

It runs in a process of its own, because a library may crash as it is loaded.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

_PREFIXES = ("", "scipy_", "cblas_")
_SUFFIXES = ("", "64_", "_64", "64")
# A function that only this kind has, and the one that says how many threads to use.
_KINDS = {
    "openblas": ("openblas_get_config", "openblas_set_num_threads"),
    "mkl": ("MKL_Get_Version", "MKL_Set_Num_Threads"),
    "blis": ("bli_info_get_version_str", "bli_thread_set_num_threads"),
    "atlas": ("ATL_buildinfo", ""),
}


def _spelt(library: ctypes.CDLL, name: str) -> str:
    """How the library spells a function's name; empty where it has none."""
    spellings = (f"{before}{name}{after}" for before in _PREFIXES for after in _SUFFIXES)
    return next((spelling for spelling in spellings if hasattr(library, spelling)), "")


def _kind(library: ctypes.CDLL) -> tuple[str, str]:
    for kind, (sign, set_threads) in _KINDS.items():
        if _spelt(library, sign):
            return kind, _spelt(library, set_threads) if set_threads else ""
    return "reference", ""


def _said(path: str) -> dict[str, str]:
    """Version, kind of core and threading, as threadpoolctl reads them of what is loaded."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:  # the library can be measured without what it says of itself
        return {}
    for loaded in threadpool_info():
        if loaded["user_api"] == "blas" and loaded["filepath"] == path:
            return {
                "version": str(loaded.get("version") or ""),
                "core_type": str(loaded.get("architecture") or ""),
                "threading": str(loaded.get("threading_layer") or ""),
            }
    return {}


def describe(path: str) -> dict[str, Any]:
    """What ``perflib.machine.libraries.blas.Blas`` holds, but the name; or ``refused``, and why."""
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        return {"refused": str(error)}
    dgemv = _spelt(library, "cblas_dgemv")
    if not dgemv:
        return {"refused": "it has no function cblas_dgemv"}
    kind, set_threads = _kind(library)
    return {"kind": kind, "dgemv": dgemv, "set_threads": set_threads, **_said(path)}


if __name__ == "__main__":
    print(json.dumps(describe(sys.argv[1])))
