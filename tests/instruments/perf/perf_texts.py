"""Texts of ``perf script`` that were recorded."""

from __future__ import annotations

from pathlib import Path

RECORDED = Path(__file__).parents[2] / "data" / "perf_script"
NAMES = sorted(path.name for path in RECORDED.glob("*.txt"))
