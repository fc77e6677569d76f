"""One page of the site, built as the site is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.site.building import sphinx


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Build one page of the given text, with the figures of some experiments; into ``out``."""
    for package in ("sphinx", "myst_nb", "pydata_sphinx_theme"):
        pytest.importorskip(package, reason="needs the extra [docs]")

    def built(text: str, figures: str = "alias_map") -> subprocess.CompletedProcess[str]:
        source = tmp_path / "source"
        source.mkdir(exist_ok=True)
        (source / "page.md").write_text(text, encoding="utf-8")
        few = ("-D", "root_doc=page", "-D", "include_patterns=page.md", "-D", "site_notebooks=0")
        return sphinx(*few, "-D", f"site_figures={figures}", source, tmp_path / "out")

    return built
