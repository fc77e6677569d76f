"""What the analyses say of runs whose files do not: those of an earlier perflib, for example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from perflib.experiments import get
from perflib.model.errors import MeasurementError
from perflib.store import run_files
from perflib.store.index import indexed

if TYPE_CHECKING:
    from pathlib import Path

_AT_ONCE = 200  # runs whose findings are kept in one go; an interruption loses no more


def analyse_runs(progress: Callable[[int, int], None] | None = None) -> dict[str, str]:
    """Analyse the store's runs that have no findings; they are kept in its index.

    The files stay as they were measured. If the index is lost, this makes the findings again.

    Parameters
    ----------
    progress
        Called with how many runs are done, and how many there are.

    Returns
    -------
    By its name, why a run could not be analysed.

    Raises
    ------
    UserError, MeasurementError
        The index cannot be written.
    """
    folder = run_files.runs_dir()
    with indexed(folder) as index:
        rows = index.connection.execute(
            "SELECT name FROM indexed WHERE analysed IS NULL ORDER BY name"
        ).fetchall()
        paths = {name: index.paths[name] for (name,) in rows}
    failed: dict[str, str] = {}
    reported: dict[str, Mapping[str, str]] = {}
    try:
        for number, (name, path) in enumerate(paths.items(), 1):
            try:
                run = run_files.load(path)
                reported[name] = get(run.experiment).reported(run)
            except Exception as error:  # noqa: BLE001 one that fails spoils none of the rest
                failed[path.stem] = str(error).partition("\n")[0] or type(error).__name__
            if len(reported) == _AT_ONCE:
                _keep(folder, reported)
                reported = {}
            if progress is not None:
                progress(number, len(paths))
    finally:
        _keep(folder, reported)
    return failed


def _keep(folder: Path, reported: Mapping[str, Mapping[str, str]]) -> None:
    import duckdb

    if not reported:
        return
    try:
        with indexed(folder, reported):
            pass
    except (OSError, duckdb.Error) as error:
        msg = f"what was found cannot be kept in {folder}: {str(error).splitlines()[0]}"
        raise MeasurementError(msg) from error
