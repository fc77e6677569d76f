"""Code to mend: each piece has one fault that costs time, and results that must not change.

>>> import perflib as pl
>>> problem = pl.fix("false_sharing")
>>> print(problem.code)  # doctest: +SKIP
>>> problem.validate(mended), problem.bench(mended)  # doctest: +SKIP
"""

from __future__ import annotations

from perflib.course.fix.interface import Fix, fix, fixes

__all__ = ["Fix", "fix", "fixes"]
