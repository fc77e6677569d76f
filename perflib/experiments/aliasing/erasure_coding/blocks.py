"""Reed–Solomon coding of numpy arrays in this process: to try the code out, not to time it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perflib.kernels import Kernel, load
from perflib.model.errors import MeasurementError, UserError

_TABLES = 0  # every processor has this method
_MOST_BLOCKS = 256

Blocks = NDArray[np.uint8]


def encode(data: Blocks, parity_blocks: int) -> Blocks:
    """All blocks, one a row: those of data, then those of parity.

    Parameters
    ----------
    data
        ``[block, byte]``, of dtype uint8.
    parity_blocks
        How many more there are to be: as many may be lost.

    Raises
    ------
    UserError
        ``data`` is no such array, or there are more than 256 blocks.

    Examples
    --------
    >>> encode(np.array([[1, 2], [3, 4]], dtype=np.uint8), 2).shape
    (4, 2)
    """
    _check(data)
    if parity_blocks < 1 or len(data) + parity_blocks > _MOST_BLOCKS:
        msg = (
            f"parity_blocks: {parity_blocks} with {len(data)} blocks of data; it goes from 1 to "
            f"{_MOST_BLOCKS - len(data)}"
        )
        raise UserError(msg)
    blocks = np.concatenate([data, np.zeros((parity_blocks, data.shape[1]), dtype=np.uint8)])
    kernel = load("erasure_coding")
    answer = kernel.lib.rs_encode(*_arguments(kernel, blocks, parity_blocks))
    _check_answer(answer)
    return blocks


def decode(blocks: Blocks, parity_blocks: int, lost: Sequence[int]) -> Blocks:
    """All blocks, whole again; what stands in the lost ones is not looked at.

    Parameters
    ----------
    blocks
        What ``encode`` returned.
    parity_blocks
        As it was encoded.
    lost
        The numbers of the lost blocks, in any order.

    Raises
    ------
    UserError
        More are lost than there are blocks of parity, or there is no block of such a number.
    """
    _check(blocks)
    if not 1 <= parity_blocks < len(blocks):
        msg = f"parity_blocks: {parity_blocks} of {len(blocks)} blocks; at least one is of data"
        raise UserError(msg)
    missing = sorted(set(lost))
    if wrong := [number for number in missing if not 0 <= number < len(blocks)]:
        msg = f"lost: there is no block {wrong[0]}; they go from 0 to {len(blocks) - 1}"
        raise UserError(msg)
    if len(missing) > parity_blocks:
        msg = (
            f"lost: {len(missing)} blocks are lost, and {parity_blocks} of parity can make up for "
            f"{parity_blocks} at most: the data cannot be had again"
        )
        raise UserError(msg)
    whole = np.ascontiguousarray(blocks).copy()
    kernel = load("erasure_coding")
    numbers = kernel.ffi.new("int32_t[]", missing)
    answer = kernel.lib.rs_decode(*_arguments(kernel, whole, parity_blocks), numbers, len(missing))
    _check_answer(answer)
    return whole


def _check(blocks: Blocks) -> None:
    if blocks.dtype != np.uint8 or blocks.ndim != 2 or 0 in blocks.shape:
        msg = (
            f"blocks are rows of bytes, an array [block, byte] of dtype uint8; this is of dtype "
            f"{blocks.dtype} and shape {blocks.shape}"
        )
        raise UserError(msg)


def _check_answer(answer: int) -> None:
    if answer:
        msg = f"kernel 'erasure_coding' fails: {os.strerror(answer)}"
        raise MeasurementError(msg)


def _arguments(kernel: Kernel, blocks: Blocks, parity_blocks: int) -> tuple[Any, ...]:
    """What ``rs_encode`` and ``rs_decode`` begin with; blocks are pointed to, not copied."""
    data, size = len(blocks) - parity_blocks, blocks.shape[1]
    matrix = kernel.ffi.new("unsigned char[]", data * parity_blocks)
    kernel.lib.rs_cauchy(data, parity_blocks, matrix)
    first = kernel.ffi.cast("unsigned char *", blocks.ctypes.data)
    pointers = kernel.ffi.new("unsigned char *[]", [first + size * b for b in range(len(blocks))])
    return _TABLES, data, parity_blocks, matrix, size, pointers
