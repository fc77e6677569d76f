"""What streams do: the kernel's kinds, by name. See ``kernels_c/common/load_streams.h``."""

from __future__ import annotations

from typing import Literal, get_args

Kind = Literal["read", "write", "nt_write", "update", "copy", "scale", "add", "triad"]
KINDS: tuple[str, ...] = get_args(Kind)
"""In the order of the kernel's numbers."""
