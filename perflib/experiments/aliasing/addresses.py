"""Addresses that alias: where a processor may take a load to depend on a store to another place.

Light: declarations of experiments use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Flags = NDArray[np.bool_]

PERIOD_BYTES = 4096  # what the low 12 bits of an address distinguish
AHEAD_BYTES = 128  # loads within two cache lines ahead of a store are in flight with it
LINE_BYTES = 64  # places in a line differ for reasons of their own: loads and stores across two
# Beyond what the stores that a core holds can reach ahead (56 of 16 bytes), and as safely behind.
_BEYOND_BYTES, _BEHIND_BYTES = 1000, 256
_BASES, _PLACES = (0, 1024, 1536, 2048, 3072, 4096), (0, 4, 8, 16, 32, 48, 64, 96)


def default_offsets(item_bytes: int) -> list[int]:
    """Just above multiples of 4096 and far from them, at the same places in a cache line."""
    every = [base + place for base in _BASES for place in _PLACES]
    return [offset for offset in every if offset % item_bytes == 0]


def aliasing(
    offsets: Sequence[int] | NDArray[np.int64], period: int = PERIOD_BYTES
) -> tuple[Flags, Flags]:
    """Which offsets are predicted to alias, and which are far from it.

    A loop that reads at ``first + i`` and writes at ``second + i`` loads, soon after it stored at
    ``second + i``, what is a little ahead of ``first + i``. Their low 12 bits agree where
    ``second - first`` is a little above a multiple of 4096. ``period`` is smaller where rows of a
    matrix that are in use together begin at several places of a page.

    Returns
    -------
    Two masks: 0 to 127 bytes above a multiple of ``period``; and 1000 or more above one and 256 or
    more below the next.
    """
    import numpy as np

    ahead = np.asarray(offsets, dtype=np.int64) % period
    return ahead < AHEAD_BYTES, (ahead >= _BEYOND_BYTES) & (ahead <= period - _BEHIND_BYTES)
