"""The distance between two buffers, swept: of kernels, of libraries, and of a user's function.

>>> from perflib.offsets import sweep_offsets
"""

from __future__ import annotations

from perflib.offsets.findings import offset_findings
from perflib.offsets.sweep import OffsetSweep, sweep_offsets
from perflib.offsets.table import OffsetTable

__all__ = ["OffsetSweep", "OffsetTable", "offset_findings", "sweep_offsets"]
