"""A user's function in a form that another process can be given: an import, a source, a symbol.

A measured function never runs in the caller's process, which may be a notebook's kernel. Functions
of a module are imported there; those of a notebook go as their source, with the modules and plain
values that they use; C functions as library, symbol and types.
"""

from __future__ import annotations

import ctypes
import inspect
import pkgutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from perflib.model.errors import UserError

# A C function: the library's path, its name, and its declaration in C; or a pointer of cffi's.
CFunction = tuple[str, str, str]
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MADE_IN_PLACE = "__main__"


def portable(function: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """What a worker needs to have the function: plain values, its ``name`` among them.

    Parameters
    ----------
    function
        A Python function; ``"module:function"``; a function pointer of cffi; or ``(library,
        symbol, declaration)``.
    arguments
        What it will be called with; a C function's are compared with its types.

    Raises
    ------
    UserError
        There is no such function, it cannot be handed to another process, or its arguments are not
        of its types.
    """
    if isinstance(function, str):
        return _imported(function)
    if isinstance(function, tuple):
        return _declared(function, arguments)
    if type(function).__module__ == "_cffi_backend":
        return _pointer(function, arguments)
    if isinstance(function, FunctionType):
        return _python(function)
    if callable(function) and hasattr(function, "__module__") and hasattr(function, "__name__"):
        return _imported(f"{function.__module__}:{function.__name__}")  # np.add, scipy's
    msg = (
        f"{function!r} is no function to sweep: give a function written with def, "
        "'module:function', a function of a cffi library, or (library, symbol, declaration)"
    )
    raise UserError(msg)


# --- Python --------------------------------------------------------------------------------------


def _imported(words: str) -> dict[str, Any]:
    if not all(words.partition(":")):
        msg = f"{words!r} names no function: write 'module:function'"
        raise UserError(msg)
    try:
        found = pkgutil.resolve_name(words)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"{words!r} cannot be imported: {error}"
        raise UserError(msg) from None
    if not callable(found):
        msg = f"{words!r} is no function, but {type(found).__name__}"
        raise UserError(msg)
    name = words.replace(":", ".").rpartition(".")[2]
    return {"kind": "import", "name": name, "path": words}


def _python(function: FunctionType) -> dict[str, Any]:
    module = function.__module__
    if module != _MADE_IN_PLACE and "<" not in function.__qualname__:  # <locals>, <lambda>
        return _imported(f"{module}:{function.__qualname__}")
    parts: dict[str, str] = {}
    _collect(function, parts)
    return {"kind": "source", "name": function.__name__, "source": "\n".join(parts.values())}


def _collect(function: FunctionType, parts: dict[str, str]) -> None:
    """The function's source after all that it needs of its surroundings."""
    name = function.__name__
    if name == "<lambda>":
        msg = "a lambda has no source of its own to hand to another process: write it with def"
        raise UserError(msg)
    if name in parts:
        return
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        msg = f"the source of {name}() cannot be found: put it into a module and import it"
        raise UserError(msg) from None
    outer: dict[str, Any] = dict(inspect.getclosurevars(function).nonlocals) | {
        used: function.__globals__[used]
        for used in _names(function.__code__)
        if used in function.__globals__
    }
    parts[name] = ""  # so that functions that call each other end
    for used, value in outer.items():
        if isinstance(value, ModuleType):
            parts[used] = f"import {value.__name__} as {used}"
        elif isinstance(value, FunctionType) and value.__module__ == _MADE_IN_PLACE:
            _collect(value, parts)
        elif callable(value) and getattr(value, "__module__", None) not in (None, _MADE_IN_PLACE):
            parts[used] = f"from {value.__module__} import {value.__name__} as {used}"
        elif isinstance(value, _PLAIN) or type(value) is tuple:
            parts[used] = f"{used} = {value!r}"
        else:
            msg = (
                f"{name}() uses {used!r} ({type(value).__name__}) of its surroundings, which "
                "another process does not have: pass it as an argument, or make it inside"
            )
            raise UserError(msg)
    del parts[name]
    parts[name] = text


def _names(code: CodeType) -> list[str]:
    """Global names that code uses, that of functions within it included."""
    within = [part for part in code.co_consts if isinstance(part, CodeType)]
    return [*code.co_names, *(name for part in within for name in _names(part))]


# --- C -------------------------------------------------------------------------------------------


def _declared(function: tuple[Any, ...], arguments: Sequence[Any]) -> dict[str, Any]:
    import cffi

    if len(function) != 3 or not all(isinstance(word, str) for word in function):
        msg = "a C function is given as (path of the library, symbol, declaration in C)"
        raise UserError(msg)
    library, symbol, declaration = function
    if not Path(library).is_file():
        msg = f"there is no library {library!r}"
        raise UserError(msg)
    ffi = cffi.FFI()
    try:
        ffi.cdef(declaration.rstrip().rstrip(";") + ";")
        found = getattr(ffi.dlopen(str(Path(library).absolute())), symbol)
    except (cffi.CDefError, cffi.FFIError, OSError, AttributeError) as error:
        msg = f"{symbol!r} of {library} cannot be loaded: {str(error).splitlines()[0]}"
        raise UserError(msg) from None
    return _c(ffi.typeof(found), str(Path(library).absolute()), symbol, arguments)


class _Found(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p),
    )  # fmt: skip


def _pointer(function: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """Which library's symbol a pointer of cffi's is, by the loader's own word."""
    import cffi

    ffi = cffi.FFI()
    kind = ffi.typeof(function)
    if kind.kind == "pointer" and kind.item.kind == "function":
        kind = kind.item
    if kind.kind != "function":
        msg = f"{function!r} is no function, but {kind.cname}"
        raise UserError(msg)
    address = int(ffi.cast("uintptr_t", function))
    found = _Found()
    known = ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found))
    if not known or not found.symbol or found.address != address:
        msg = f"{function!r} is in no library's symbol table: give (library, symbol, declaration)"
        raise UserError(msg)
    return _c(kind, found.file.decode(), found.symbol.decode(), arguments)


def _c(kind: Any, library: str, symbol: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Types, with each pointer as ``void *``: their items were compared with the arrays' here."""
    if kind.ellipsis or len(kind.args) != len(arguments):
        msg = f"{symbol}() takes {len(kind.args)} arguments, and {len(arguments)} are given"
        raise UserError(msg)
    types = []
    for place, (wanted, given) in enumerate(zip(kind.args, arguments, strict=True)):
        if wanted.kind == "pointer":
            _check_item(symbol, place, wanted, given)
            types.append("void *")
        elif isinstance(given, np.ndarray):
            msg = f"argument {place} of {symbol}() is {wanted.cname!r}, and an array is given"
            raise UserError(msg)
        elif wanted.kind != "primitive":
            msg = f"argument {place} of {symbol}() is {wanted.cname!r}: numbers and pointers only"
            raise UserError(msg)
        else:
            types.append(wanted.cname)
    return {"kind": "c", "name": symbol, "library": library, "types": types}


def _check_item(symbol: str, place: int, wanted: Any, given: Any) -> None:
    if not isinstance(given, np.ndarray):
        msg = f"argument {place} of {symbol}() is {wanted.cname!r}: give a numpy array"
        raise UserError(msg)
    item = wanted.item
    if item.kind != "primitive" or item.cname in ("char", "signed char", "unsigned char"):
        return  # void, a structure, bytes: whatever is there
    import cffi

    floating = item.cname in ("float", "double", "long double")
    if cffi.FFI().sizeof(item) != given.itemsize or floating != (given.dtype.kind == "f"):
        msg = (
            f"argument {place} of {symbol}() is {wanted.cname!r}, and the array's are {given.dtype}"
        )
        raise UserError(msg)
