"""What to do about 4K aliasing: arrays that do not alias, an allocator of such, a tuned offset.

And what each does to a function of yours, aliases simulated and time measured.

>>> import perflib as pl
>>> a, out = pl.alias_free((1000, "f4"), (1000, "f4"))
"""

from __future__ import annotations

from perflib.remedies.allocator import alias_free_allocator
from perflib.remedies.arrays import alias_free, alias_free_copies
from perflib.remedies.shown import RemediesShown, show_remedies
from perflib.remedies.tuner import BestOffset, best_offset

__all__ = [
    "BestOffset",
    "RemediesShown",
    "alias_free",
    "alias_free_allocator",
    "alias_free_copies",
    "best_offset",
    "show_remedies",
]
