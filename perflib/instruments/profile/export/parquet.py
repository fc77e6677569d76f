"""The table of samples as a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pandas as pd

from perflib.instruments.perf.script import Profile
from perflib.instruments.profile.export.files import written
from perflib.store import run_files


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
        _write(profile.samples, temporary, {"perf": json.dumps(profile.header)})


def write(samples: pd.DataFrame, name: str, path: Path) -> None:
    """Write the table, with the profile's name in its metadata (``name``)."""
    _write(samples, path, {"name": name})


def _write(samples: pd.DataFrame, path: Path, metadata: Mapping[str, str]) -> None:
    try:
        run_files.write_parquet(samples, path, metadata)
    except duckdb.Error as error:
        raise OSError(str(error).splitlines()[0]) from error
