"""Arrays that are used together, placed so that no two begin at nearly the same place of a page."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from perflib.experiments.aliasing.addresses import PERIOD_BYTES
from perflib.model.errors import UserError

Spec = tuple[int | Sequence[int], DTypeLike] | NDArray[Any]


def zeros_at(place: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array of zeros whose address is ``place`` modulo 4096; its memory is its own.

    Less than a page is wasted. numpy makes the memory, so all that holds for its arrays holds (a
    handler of yours is used, large ones have no page before they are written to).
    """
    room = np.zeros(math.prod(shape) * dtype.itemsize + PERIOD_BYTES - 1, np.uint8)
    begin = (place - room.ctypes.data) % PERIOD_BYTES
    return np.ndarray(shape, dtype, buffer=room, offset=begin)


def alias_free(*specs: Spec, alignment: int = 64) -> tuple[NDArray[Any], ...]:
    """Arrays of zeros whose addresses do not alias: no two agree nearly in their low 12 bits.

    The ``n`` arrays begin at ``n`` places spread evenly over the 4096 bytes that those bits
    distinguish. For every pair the distance of their first bytes, modulo 4096 and either way round,
    is ``4096 / n`` bytes or more, rounded down to a multiple of ``alignment``: 2048 for two, 1344
    for three, 1024 for four, and 128 or more up to 32. 128 bytes are how far loads run ahead of a
    store (``addresses.AHEAD_BYTES``); beyond 32 arrays the nearest pairs are closer than that,
    though never at the same place.

    What is promised of the first bytes holds of all that is reached in step: arrays of one length
    that are walked at the same number of bytes a step keep their distance. Where one is walked
    faster than another, or rows of a matrix are used together, places meet now and then wherever
    the arrays begin.

    Parameters
    ----------
    specs
        ``(shape, dtype)``, or an array whose shape and dtype are taken (not its values, for which
        there is ``alias_free_copies``).
    alignment
        Of the first bytes: a power of two, up to 4096. A dtype that needs more gets more.

    Returns
    -------
    An array for each, in order: C-contiguous, writeable, zero. Each has memory of its own, less
    than 4096 bytes more than it needs, and keeps it alive. Length zero is as good as any.

    Raises
    ------
    UserError
        No shape or dtype, Python objects as items, an alignment that is none, or more arrays than a
        page has places of that alignment.

    Examples
    --------
    >>> a, out = alias_free((1000, np.float32), ((20, 50), float))
    >>> (out.ctypes.data - a.ctypes.data) % 4096
    2048
    """
    wanted = [_shape_and_dtype(number, spec) for number, spec in enumerate(specs)]
    places = _places(wanted, alignment)
    return tuple(
        zeros_at(place, shape, dtype) for place, (shape, dtype) in zip(places, wanted, strict=True)
    )


def alias_free_copies(*arrays: ArrayLike, alignment: int = 64) -> tuple[NDArray[Any], ...]:
    """Copies of arrays, placed as ``alias_free`` places them: C-contiguous, and with their values.

    >>> a, b = alias_free_copies(np.arange(3), [0.5, 1.5])
    >>> a, b
    (array([0, 1, 2]), array([0.5, 1.5]))
    """
    given = [np.asarray(array) for array in arrays]
    copies = alias_free(*given, alignment=alignment)
    for copy, array in zip(copies, given, strict=True):
        copy[...] = array
    return copies


def _shape_and_dtype(number: int, spec: Spec) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        if isinstance(spec, tuple):
            wanted, kind = spec
            dims = tuple(wanted) if isinstance(wanted, Sequence) else (wanted,)
            shape, dtype = tuple(map(operator.index, dims)), np.dtype(kind)
        else:
            shape, dtype = tuple(spec.shape), np.dtype(spec.dtype)
    except (TypeError, ValueError, AttributeError) as error:
        msg = f"array {number}: {spec!r} is neither (shape, dtype) nor an array: {error}"
        raise UserError(msg) from None
    if any(length < 0 for length in shape):
        msg = f"array {number}: a length of {shape} is negative"
        raise UserError(msg)
    if dtype.hasobject:
        msg = f"array {number}: {dtype} holds Python objects, which are elsewhere: use numbers"
        raise UserError(msg)
    return shape, dtype


def _places(wanted: Sequence[tuple[Any, np.dtype[Any]]], alignment: int) -> list[int]:
    """Where in a page each of the arrays begins."""
    if alignment not in {1 << bit for bit in range(PERIOD_BYTES.bit_length())}:
        msg = f"alignment is a power of two from 1 to {PERIOD_BYTES} bytes, not {alignment!r}"
        raise UserError(msg)
    align = max([alignment, *(dtype.alignment for _, dtype in wanted)])
    there, count = PERIOD_BYTES // align, len(wanted)
    if count > there:
        msg = (
            f"{count} arrays cannot all begin at different places: a page of {PERIOD_BYTES} bytes "
            f"has {there} that are aligned to {align}. Ask for a smaller alignment, or separately "
            "for those arrays that are used together"
        )
        raise UserError(msg)
    return [number * there // count * align for number in range(count)]
