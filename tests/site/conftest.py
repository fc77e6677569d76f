"""One page of the site, built as the site is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.site.building import sphinx


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Build pages of the given texts, with the figures of one experiment; into ``out``."""
    for package in ("sphinx", "myst_nb", "pydata_sphinx_theme"):
        pytest.importorskip(package, reason="needs the extra [docs]")

    def built(**texts: str) -> subprocess.CompletedProcess[str]:
        source = tmp_path / "source"
        source.mkdir()
        for name, text in texts.items():
            (source / f"{name}.md").write_text(text, encoding="utf-8")
        root = next(iter(texts))
        pages = ("-D", f"root_doc={root}", "-D", "include_patterns=*.md", "-D", "site_notebooks=0")
        return sphinx(*pages, "-D", "site_figures=alias_map", source, tmp_path / "out")

    return built
