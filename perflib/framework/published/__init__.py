"""What others published, as tables to show beside what is measured here."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

__all__ = ["published"]


def published(name: str) -> pd.DataFrame:
    """A published table, as printed in its source (see README.md beside it)."""
    return pd.read_csv(Path(__file__).parent / f"{name}.csv")
