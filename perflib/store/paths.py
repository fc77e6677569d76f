"""Where perflib's files live: the C, the notebooks, the caches and the saved runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import platformdirs

from perflib.model.errors import UserError

_PACKAGE = Path(__file__).parents[1]


def _shipped(name: str) -> Path:
    """A folder that a wheel carries inside the package and a checkout has at its top."""
    inside = _PACKAGE / "_data" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def kernels_dir() -> Path:
    """The folder of the C kernels."""
    return _shipped("kernels_c")


def notebooks_dir() -> Path:
    """The folder of the notebooks (read-only in an installed wheel: copy them to work)."""
    return _shipped("notebooks")


def cache_dir() -> Path:
    """What can be made again (compiled kernels). ``PERFLIB_CACHE`` moves it."""
    return Path(os.environ.get("PERFLIB_CACHE") or platformdirs.user_cache_dir("perflib"))


def data_dir() -> Path:
    """What cannot (runs, journals, the restore list). ``PERFLIB_HOME`` moves it."""
    return Path(os.environ.get("PERFLIB_HOME") or platformdirs.user_data_dir("perflib"))


def place_notebooks(folder: Path | None) -> Path:
    """Copy the notebooks to a user's folder; without one, a checkout's own are used in place.

    What is there already stays as it is.

    Raises
    ------
    UserError
        No folder is given and the notebooks belong to an installed package, or it is a file.
    """
    notebooks = notebooks_dir()
    if folder is None:
        if notebooks.parent.name == "_data":
            msg = "say where the notebooks are to be copied: perflib lab FOLDER"
            raise UserError(msg)
        return notebooks
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(notebooks.rglob("*.ipynb")):
            target = folder / notebook.relative_to(notebooks)
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(notebook, target)
    except OSError as error:
        msg = f"the notebooks cannot be copied to {folder}: {error.strerror}"
        raise UserError(msg) from error
    return folder
