"""Notebooks are executed before the pages are read; a page is made of the executed one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from executing import execute_all
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

__all__ = ["searched", "setup", "with_words"]

_FIRST = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>perflib</title>
<meta http-equiv="refresh" content="0; url={0}"></head>
<body><a href="{0}">perflib</a></body></html>
"""
_log = logging.getLogger(__name__)
_executed: dict[str, tuple[Path, str]] = {}


def _prepare(app: Sphinx) -> None:
    if app.config.site_notebooks:
        _log.info("executing the notebooks with recorded runs ...")
        _executed.update(execute_all())


def _outdated(
    _app: Sphinx, env: BuildEnvironment, _added: set[str], _changed: set[str], _removed: set[str]
) -> list[str]:
    """Notebooks whose executed version is another than that on the page."""
    shown: dict[str, str] = getattr(env, "site_executed", {})
    now = {name: path.name for name, (path, _) in _executed.items()}
    env.site_executed = now  # type: ignore[attr-defined]
    return [name for name in now if name in env.found_docs and shown.get(name) != now[name]]


def _replace(_app: Sphinx, docname: str, source: list[str]) -> None:
    if docname in _executed:
        path, wrong = _executed[docname]
        source[0] = path.read_text(encoding="utf-8")
        if wrong:
            _log.warning("%s", wrong, location=docname)
    folder, _, name = docname.rpartition("/")
    if folder == "notebooks" and (words := searched(name)):
        source[0] = with_words(source[0], words)


def searched(notebook: str) -> list[str]:
    """The words for which a search leads to a notebook first."""
    from perflib.lab.symptoms import symptoms

    return [word for one in symptoms() if one.notebooks[:1] == (notebook,) for word in one.words]


def with_words(notebook: str, words: Sequence[str]) -> str:
    """A notebook with main entries of the index, which a search prefers, below its title."""
    made = json.loads(notebook)
    entries = ", ".join(f"! {word}" for word in words)
    text = f"```{{index}} {entries}\n```"
    cell = {"cell_type": "markdown", "id": "index", "metadata": {}, "source": text}
    made["cells"].insert(1, cell)
    return json.dumps(made)


def _begin(app: Sphinx, error: Exception | None) -> None:
    """The folder's own index.html leads to the first page."""
    root = Path(app.outdir, f"{app.config.root_doc}.html")
    if error is None and app.builder.name == "html" and app.config.root_doc != "index":
        Path(app.outdir, "index.html").write_text(_FIRST.format(root.relative_to(app.outdir)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect it; ``-D site_notebooks=0`` shows notebooks without outputs."""
    app.add_config_value("site_notebooks", default=True, rebuild="env", types=(bool,))
    app.connect("builder-inited", _prepare)
    app.connect("env-get-outdated", _outdated)
    app.connect("source-read", _replace)
    app.connect("build-finished", _begin)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
