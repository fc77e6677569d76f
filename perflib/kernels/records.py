"""A C struct as a numpy dtype: its fields are declared once, in the interface of a C file."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflib.model.errors import MeasurementError, UserError, choose
from perflib.store import paths

if TYPE_CHECKING:
    import numpy as np

    from perflib.kernels import Build

_INTERFACE = re.compile(r"^// @interface\s*$(.*?)^// @end\s*$", re.MULTILINE | re.DOTALL)
INCLUDE = re.compile(r'^[ \t]*#\s*include\s+"([^"]+)"', re.MULTILINE)


def included(files: Iterable[Path]) -> list[Path]:
    """Every header of ours that C files include, directly or through another, once.

    Each comes after those that it includes itself.
    """
    found: dict[Path, None] = {}
    files = [file.resolve() for file in files]
    begun = set(files)

    def follow(file: Path) -> None:
        for name in INCLUDE.findall(file.read_text()):
            for folder in (file.parent, paths.kernels_dir()):
                header = (folder / name).resolve()
                if header.is_file() and header not in begun:
                    begun.add(header)
                    follow(header)
                    found[header] = None

    for file in files:
        follow(file)
    return list(found)


def declarations(path: Path) -> str:
    """The declarations of a C file, which stand between ``// @interface`` and ``// @end``.

    Those of the headers that it includes come first: what they declare, its own may use.

    Raises
    ------
    UserError
        There are none.
    """
    headers = [_INTERFACE.search(header.read_text()) for header in included([path])]
    own = _INTERFACE.search(path.read_text())
    if own is None:
        msg = f"{path}: no declarations between '// @interface' and '// @end'"
        raise UserError(msg)
    return "".join(found.group(1) for found in (*headers, own) if found is not None)


def parsed(cdef: str, path: Path) -> Any:
    """Cffi's ``ffi`` that has read declarations.

    Raises
    ------
    MeasurementError
        cffi does not understand them.
    """
    import cffi

    ffi = cffi.FFI()
    try:
        ffi.cdef(cdef)
    except (cffi.CDefError, cffi.FFIError) as error:
        msg = f"{path}: cffi cannot read the declarations: {error}"
        raise MeasurementError(msg) from error
    return ffi


@functools.cache
def open_interface(module: str) -> Any:
    """Cffi's ``ffi`` with a build's declarations; no library is loaded."""
    # Without bytecode: a file of it next to the module would be loaded in the module's place.
    loaded: dict[str, Any] = {}
    exec(compile(Path(module).read_bytes(), module, "exec"), loaded)  # noqa: S102 (cffi wrote it)
    return loaded["ffi"]


def record(declared: Build | str, struct: str) -> np.dtype[Any]:
    """The fields of a struct, with C's offsets and sizes.

    Parameters
    ----------
    declared
        A kernel's build, or (slower: the C is parsed) the name of a kernel or header that declares
        the struct between ``// @interface`` and ``// @end``.
    struct
        The name of its typedef, or ``struct NAME``.

    Raises
    ------
    UserError
        There is no such file or struct, or the struct has a field that numpy cannot hold: a
        pointer, a union, bits, an array without a length.

    Examples
    --------
    >>> record("clock_gaps", "clock_gap").names
    ('start_ns', 'length_ns', 'switches')
    """
    if isinstance(declared, str):
        return _record(_of_file(declared), declared, struct)
    module = declared.module
    ffi = open_interface(str(module)) if module is not None else _of_file(declared.name)
    return _record(ffi, declared.name, struct)


@functools.cache
def _record(ffi: Any, file: str, struct: str) -> np.dtype[Any]:
    typedefs, tags, _ = ffi.list_types()
    names = [*typedefs, *(f"struct {tag}" for tag in tags)]
    structs = [name for name in names if ffi.typeof(name).kind == "struct"]
    if struct not in structs:
        raise UserError(choose(f"struct of {file!r}", struct, structs))
    return _dtype(ffi, ffi.typeof(struct), f"{struct} of {file!r}")


@functools.cache
def _of_file(name: str) -> Any:
    files = {path.stem: path for path in paths.kernels_dir().glob("**/*.[ch]")}
    if name not in files:
        raise UserError(choose("C file", name, files))
    return parsed(declarations(files[name]), files[name])


def _dtype(ffi: Any, kind: Any, where: str) -> np.dtype[Any]:
    import numpy as np

    if kind.kind == "struct" and kind.fields is not None:
        fields = dict(kind.fields)
        bits = [name for name, field in fields.items() if field.bitsize >= 0]
        if bits:
            raise _refused(where, f"bits of an integer ({bits[0]})")
        formats = [_dtype(ffi, field.type, f"{name} of {where}") for name, field in fields.items()]
        return np.dtype(
            {
                "names": list(fields),
                "formats": formats,
                "offsets": [field.offset for field in fields.values()],
                "itemsize": ffi.sizeof(kind),
            }
        )
    if kind.kind == "array" and kind.length is not None:
        if kind.item.cname == "char":
            return np.dtype(f"S{kind.length}")
        item = _dtype(ffi, kind.item, where)
        return np.dtype((item.base, (kind.length, *item.shape)))
    known = {"char": "S1", "float": "f4", "double": "f8", "_Bool": "?"}
    if kind.cname in known:
        return np.dtype(known[kind.cname])
    others = ("double", "float", "wchar_t", "char16_t", "char32_t")
    if kind.kind == "enum" or (
        kind.kind == "primitive" and not any(other in kind.cname for other in others)
    ):
        signed = int(ffi.cast(kind, -1)) < 0
        return np.dtype(f"{'i' if signed else 'u'}{ffi.sizeof(kind)}")
    raise _refused(where, f"the type {kind.cname!r}")


def _refused(where: str, what: str) -> UserError:
    msg = (
        f"{where} has {what}, which a numpy dtype cannot hold; it holds numbers, enums, structs, "
        "and arrays of them with a length"
    )
    return UserError(msg)
