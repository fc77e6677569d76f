"""The table of samples as a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pandas as pd

from perflib.instruments.perf.script import Profile
from perflib.instruments.profile.export.files import written

__all__ = ["write", "write_parquet"]


def write_parquet(profile: Profile, path: Path) -> None:
    """Write the samples as a Parquet file, perf's header as JSON in its metadata (``perf``).

    Raises
    ------
    UserError
        It cannot be written there; what was there is unchanged.

    Examples
    --------
    >>> write_parquet(profile, Path("samples.parquet"))  # doctest: +SKIP
    >>> duckdb.sql("SELECT symbol, count(*) FROM 'samples.parquet' GROUP BY 1")  # doctest: +SKIP
    """
    with written(path) as temporary:
        _copy(profile.samples, {"perf": json.dumps(profile.header)}, temporary)


def write(samples: pd.DataFrame, name: str, path: Path) -> None:
    """Write the table, with the profile's name in its metadata (``name``)."""
    _copy(samples, {"name": name}, path)


def _copy(samples: pd.DataFrame, metadata: Mapping[str, str], path: Path) -> None:
    def quoted(text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    values = ", ".join(f"{key}: {quoted(value)}" for key, value in metadata.items())
    try:
        with duckdb.connect() as connection:
            connection.register("samples", samples)
            connection.execute(
                f"COPY samples TO {quoted(str(path))} "
                f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{values}}})"
            )
    except duckdb.Error as error:
        raise OSError(str(error).splitlines()[0]) from error
