"""numpy's own allocations placed so that they do not alias, through its allocator hook (NEP 49).

The hook is part of numpy's C interface. That is a table of addresses which numpy hands out for
extensions; which entry is which is fixed for all versions of one binary interface, and the table
says itself of which it is. So no header of numpy's or Python's is needed, and the C of ours
(``kernels_c/tools/alias_allocator.c``) serves every version of both.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perflib.kernels import load
from perflib.model.errors import MeasurementError, UserError

# Entries of numpy's table, and the binary interfaces (of numpy 1 and 2) in which they are these.
_ABI, _FEATURES, _SET_HANDLER, _GET_HANDLER = 0, 211, 304, 305
_KNOWN_ABIS = (0x0100_0009, 0x0200_0000)
_HOOK_SINCE = 0xF  # numpy 1.22
_TABLE, _CAPSULE = "_ARRAY_API", b"mem_handler"

_OURS: dict[int, Any] = {}  # capsules by the address of the handler that each stands before
_LOCK = threading.Lock()


@contextmanager
def alias_free_allocator() -> Iterator[None]:
    """Within it, numpy places every array of a page (4096 bytes) or more where it does not alias.

    All numpy allocations are meant: results and temporary arrays of expressions, what ``np.load``
    reads, what pandas requests of numpy. A new array begins at that cache line of a page at which
    fewest arrays of this kind that are still alive begin, the farthest from those that do. While
    ``m`` of them are alive (m < 64), the next begins ``4096 / (2 m)`` bytes or more from each,
    modulo 4096 and rounded down to a multiple of 64: 2048 from a single other, and 128 or more up
    to 16 others. Up to 64 no two begin at the same line.

    Costs: a page an array; nothing is kept for later. Smaller arrays get 16 bytes more and are left
    their places. Resizing in place copies. Memory comes from the handler that was in
    force, numpy's or another, with all that it does about huge pages or nodes.

    Arrays may be used, resized and freed when the context has ended, in any thread: numpy keeps the
    handler with each array. numpy's hook is a context variable: in force in this thread or
    asyncio task, not in threads that are started within (``contextvars.copy_context().run`` takes
    it there). Contexts may be nested, and an exception ends one as usual.

    Raises
    ------
    UserError
        This Python or this numpy has no such hook, or one that is not known here.

    Examples
    --------
    >>> with alias_free_allocator():  # doctest: +SKIP
    ...     a, out = np.ones(1 << 20), np.empty(1 << 20)
    """
    set_handler, get_handler = _hook()
    before = get_handler()
    ours = _standing_before(before)
    try:
        set_handler(ours)
        yield
    finally:
        set_handler(before)


@functools.cache
def _hook() -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    """The functions ``PyDataMem_SetHandler`` and ``PyDataMem_GetHandler`` of numpy."""
    table = _numpy_table()
    abi, features = (ctypes.CFUNCTYPE(ctypes.c_uint)(table[at])() for at in (_ABI, _FEATURES))
    if abi not in _KNOWN_ABIS:
        msg = (
            f"numpy's binary interface {abi:#x} is not known here (known: "
            f"{', '.join(map(hex, _KNOWN_ABIS))}): use alias_free() for arrays that do not alias"
        )
        raise UserError(msg)
    if features < _HOOK_SINCE:
        msg = "this numpy has no allocator hook: it takes numpy 1.22 or newer"
        raise UserError(msg)
    set_type = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    get_type = ctypes.PYFUNCTYPE(ctypes.py_object)
    return set_type(table[_SET_HANDLER]), get_type(table[_GET_HANDLER])


def _numpy_table() -> Any:
    """The addresses that numpy hands out to extensions."""
    for package in ("numpy._core", "numpy.core"):  # numpy 2, numpy 1
        try:
            module = importlib.import_module(f"{package}._multiarray_umath")
            address = _capsule_functions()[0](getattr(module, _TABLE), None)
        except (ImportError, AttributeError):
            continue
        return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
    msg = (
        "numpy's C interface cannot be reached from this Python: it takes CPython with its numpy. "
        "alias_free() makes arrays that do not alias without it"
    )
    raise UserError(msg)


@functools.cache
def _capsule_functions() -> tuple[Callable[..., int], Callable[..., Any]]:
    """Python's ``PyCapsule_GetPointer`` and ``PyCapsule_New``."""
    get_type = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    new_type = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
    )
    return (
        get_type(("PyCapsule_GetPointer", ctypes.pythonapi)),
        new_type(("PyCapsule_New", ctypes.pythonapi)),
    )


def _standing_before(handler: Any) -> Any:
    """The capsule of our handler that asks this one for memory; each is made once and kept.

    One of ours stands before no other of ours: it is returned as it is.
    """
    pointer_of, new_capsule = _capsule_functions()
    inner = pointer_of(handler, _CAPSULE)
    with _LOCK:
        if any(pointer_of(ours, _CAPSULE) == inner for ours in _OURS.values()):
            return handler
        if inner not in _OURS:
            kernel = load("alias_allocator")
            ffi, lib = kernel.ffi, kernel.lib
            made = lib.alias_handler(ffi.cast("void *", inner))
            if made == ffi.NULL:
                msg = "there is no memory left for an allocator of arrays"
                raise MeasurementError(msg)
            made, name = (int(ffi.cast("uintptr_t", at)) for at in (made, lib.alias_capsule_name()))
            # Arrays may outlive this module: what stands behind them must outlive the arrays.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handler))
            _OURS[inner] = new_capsule(made, name, None)
        return _OURS[inner]
