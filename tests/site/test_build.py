"""One page is built as the site is: figures of recorded runs, formulas, and what is refused."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.xdist_group("site")  # they share the cache of drawn figures


def test_a_page_with_a_figure_and_a_formula(build: Build, tmp_path: Path) -> None:
    done = build("# A page\n\nIt is $x^2$.\n\n```{recorded-figure} alias_map distance\n```\n")
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert "<math" in html
    assert "alias_map" in html
    assert "recorded=" in re.sub(r"<[^>]*>", "", html)
    image = re.search(r'<img[^>]*alt="[^"]*recorded on[^"]*"[^>]*>', html)
    assert image, "a figure has an alternative text"
    source = re.search(r'src="([^"]*)"', image[0])
    assert source
    assert (tmp_path / "out" / source[1]).is_file()
    asked = re.findall(
        r'(?:<script[^>]*src|<link[^>]*stylesheet"? href|<img[^>]*src)="([^"]*)"', html
    )
    assert asked
    assert not [address for address in asked if re.match(r"(https?:)?//", address)]


WRONG = {
    "```{recorded-figure} alias_map distanc\n```": "did you mean 'distance'",
    "```{recorded-figure} alias_mop distance\n```": "did you mean 'alias_map'",
    "```{recorded-figure} alias_map distance\n:machine: nowhere\n```": "intel-guest",
    "```{recorded-figure} alias_map map\n:tag: never\n```": "with the tag 'never'",
    "```{recorded-figure} alias_map map\n:says: alais\n```": "unknown subject of alias_map",
    "```{recorded-figure} numa heatmap\n```": "no run of numa is recorded",
    "[lost](lost.md)": "lost.md",
}


def test_what_is_not_there_fails_with_a_sentence(build: Build) -> None:
    done = build("\n\n".join(["# A page", *WRONG]))
    assert done.returncode != 0
    for directive, sentence in WRONG.items():
        assert sentence in done.stderr, directive
    assert done.stderr.count("page.md:") == len(WRONG)
    assert "Traceback" not in done.stderr
