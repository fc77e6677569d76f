"""One page is built as the site is: figures of recorded runs, formulas, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.site.building import sphinx

# Starts Sphinx, and shares the cache of drawn figures with the tests of the whole site.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]


WRONG = {
    "```{recorded-figure} alias_map distanc\n```": "did you mean 'distance'",
    "```{recorded-figure} alias_mop distance\n```": "did you mean 'alias_map'",
    "```{recorded-figure} alias_map distance\n:machine: nowhere\n```": "intel-guest",
    "```{recorded-figure} alias_map map\n:tag: never\n```": "with the tag 'never'",
    "```{recorded-figure} alias_map map\n:says: alais\n```": "unknown subject of alias_map",
    "```{recorded-figure} numa heatmap\n```": "no run of numa is recorded",
    "```{lesson-points} mistery\n```": "did you mean 'mystery'",
    "[lost](lost.md)": "lost.md",
}

RIGHT = """# A page

It is $x^2$.

```{recorded-figure} alias_map distance
```

```{lesson-points} mystery
```

```{toctree}
wrong
```
"""


def test_a_page_is_built_and_what_is_not_there_gets_a_sentence(tmp_path: Path) -> None:
    """In one build, since each takes seconds: the page that is right has no warning."""
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "page.md").write_text(RIGHT, encoding="utf-8")
    (texts / "wrong.md").write_text("\n\n".join(["# Wrong", *WRONG]), encoding="utf-8")
    pages = ("-D", "root_doc=page", "-D", "include_patterns=*.md", "-D", "site_notebooks=0")
    done = sphinx(*pages, "-D", "site_figures=alias_map", texts, tmp_path / "out")
    assert done.returncode != 0
    for directive, sentence in WRONG.items():
        assert sentence in done.stderr, directive
    assert done.stderr.count("wrong.md:") == len(WRONG)
    assert "Traceback" not in done.stderr
    assert "page.md" not in done.stderr

    html = (tmp_path / "out" / "page.html").read_text(encoding="utf-8")
    assert "<math" in html
    assert "relation" in html
    assert "recorded=" in re.sub(r"<[^>]*>", "", html)
    image = re.search(r'<img[^>]*alt="[^"]*recorded on[^"]*"[^>]*>', html)
    assert image, "a figure has an alternative text"
    source = re.search(r'src="([^"]*)"', image[0])
    assert source
    assert (tmp_path / "out" / source[1]).is_file()
    requested = re.findall(
        r'(?:<script[^>]*src|<link[^>]*stylesheet"? href|<img[^>]*src)="([^"]*)"', html
    )
    assert requested
    assert not [address for address in requested if re.match(r"(https?:)?//", address)]
