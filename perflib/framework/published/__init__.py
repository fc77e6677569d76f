"""What others published, as tables to compare with what is measured here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

__all__ = ["published"]


def published(name: str) -> pd.DataFrame:
    """A published table, as printed in its source (see README.md in this folder)."""
    return pd.read_csv(Path(__file__).parent / f"{name}.csv")
