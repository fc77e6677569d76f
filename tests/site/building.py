"""The site's own modules, which are next to its pages, and a way to build it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def site_module(name: str) -> Any:
    """One of the modules in docs/_ext."""
    if str(DOCS / "_ext") not in sys.path:
        sys.path.insert(0, str(DOCS / "_ext"))
    return importlib.import_module(name)


def sphinx(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """``python -m sphinx`` with the site's configuration, warnings as errors."""
    for package in ("sphinx", "myst_nb", "pydata_sphinx_theme"):
        pytest.importorskip(package, reason="needs the extra [docs]")
    argv = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", DOCS, *arguments]
    return subprocess.run(
        list(map(str, argv)), capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"PERFLIB_CONFIG": "none"},
    )  # fmt: skip
