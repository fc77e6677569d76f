"""What a user gives to be swept, checked: arrays, which of them moves, the offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.experiments.aliasing.addresses import default_offsets
from perflib.model.errors import UserError

_MOST_OFFSET = 1 << 20
_KINDS = "biufcSVMm"  # of numpy: what is in the array itself


def _named(place: int, array: NDArray[Any]) -> str:
    return f"argument {place} ({array.dtype} of shape {array.shape})"


def check_arrays(arguments: Sequence[Any], move: int | None) -> tuple[int, int]:
    """Which argument stays and which moves: places of the first array, and of ``move``.

    Parameters
    ----------
    arguments
        Of the function, in order: arrays and whatever else it takes.
    move
        The place of the array that the function writes to; by default the last array's.

    Raises
    ------
    UserError
        Fewer than two arrays; one that is empty, not contiguous, of Python objects, or that
        overlaps another; ``move`` is no array, or a read-only one.
    """
    arrays = {i: one for i, one in enumerate(arguments) if isinstance(one, np.ndarray)}
    if len(arrays) < 2:
        msg = f"it takes two numpy arrays or more, one of them written to; there are {len(arrays)}"
        raise UserError(msg)
    moves = max(arrays) if move is None else move
    if moves not in arrays:
        places = ", ".join(map(str, arrays))
        msg = f"move={moves} is no array among the arguments: arrays are at {places}, from 0"
        raise UserError(msg)
    for place, array in arrays.items():
        if array.size == 0:
            msg = f"{_named(place, array)} is empty: there is nothing to read or write"
        elif array.dtype.kind not in _KINDS or array.dtype.hasobject:
            msg = f"{_named(place, array)} holds Python objects, which are elsewhere: use numbers"
        elif not (array.flags.c_contiguous or array.flags.f_contiguous):
            msg = (
                f"{_named(place, array)} is not contiguous (its strides are {array.strides} bytes):"
                " whole blocks of memory are copied. Give np.ascontiguousarray(...) of it"
            )
        elif place == moves and not array.flags.writeable:
            msg = (
                f"{_named(place, array)} is read-only, and the function is to write to it: name "
                "the array that it writes to with move="
            )
        else:
            continue
        raise UserError(msg)
    for place, array in arrays.items():
        for other in [before for before in arrays if before < place]:
            if np.may_share_memory(array, arrays[other]):
                msg = (
                    f"arguments {other} and {place} overlap in memory: each gets a place of "
                    "its own, so a function that works in place cannot be swept. Give copies"
                )
                raise UserError(msg)
    stays = next(place for place in arrays if place != moves)
    return stays, moves


def check_offsets(wanted: Iterable[int] | None, array: NDArray[Any]) -> list[int]:
    """The offsets, ascending, each once; the default ones where none are given.

    Raises
    ------
    UserError
        Fewer than two; one that is no whole number, negative, beyond 1 MiB, or no multiple of the
        array's items.
    """
    align = array.dtype.alignment
    if wanted is None:
        return default_offsets(align)
    offsets: set[int] = set()
    for offset in wanted:
        if isinstance(offset, bool) or not isinstance(offset, int | np.integer):
            msg = f"an offset is a whole number of bytes, not {offset!r}"
        elif not 0 <= offset <= _MOST_OFFSET:
            msg = f"an offset goes from 0 to {_MOST_OFFSET} bytes, not {offset}; -8 is as 4088"
        elif offset % align:
            msg = (
                f"the offset {offset} is no multiple of {align} bytes, the alignment of the "
                f"array's {array.dtype}"
            )
        else:
            offsets.add(int(offset))
            continue
        raise UserError(msg)
    if len(offsets) < 2:
        msg = f"it takes two offsets or more to compare; there are {len(offsets)}"
        raise UserError(msg)
    return sorted(offsets)
