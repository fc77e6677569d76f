"""The directive ``public-names``: everything that ``import perflib as pl`` gives, by autodoc."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["api_page", "setup"]


def api_page() -> str:
    """All public names as Markdown: first a table with a line each, then each in full."""
    import perflib as pl

    names = sorted(pl.__all__, key=str.lower)
    lines = ["| name | what it is |", "| -- | -- |"]
    lines += [
        f"| [`pl.{name}`](#pl-{_slug(name)}) | {_first(getattr(pl, name))} |" for name in names
    ]
    for name in names:
        lines += ["", f"(pl-{_slug(name)})=", "", f"## pl.{name}", ""]
        lines += ["```{eval-rst}", *_documented(name, getattr(pl, name)), "```"]
    return "\n".join(lines)


def _slug(name: str) -> str:
    return name.lower().replace("_", "-")


def _first(value: Any) -> str:
    """The first line of what its author says of it."""
    if not (inspect.isroutine(value) or inspect.isclass(value) or isinstance(value, ModuleType)):
        return "a table of constants"
    return inspect.cleandoc(value.__doc__ or "").partition("\n")[0].replace("|", "\\|")


def _documented(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield from (f".. automodule:: {value.__name__}", "   :members:")
    elif isinstance(value, type) and issubclass(value, BaseException):
        yield f".. autoexception:: perflib.{name}"
    elif isinstance(value, type):
        yield from (f".. autoclass:: perflib.{name}", "   :members:")
    elif callable(value):
        yield f".. autofunction:: perflib.{name}"
    else:
        yield from (f".. autodata:: perflib.{name}", "   :no-value:")


def _no_type(_app: Sphinx, what: str, *given: Any) -> None:
    """Napoleon takes what stands before a property's colon for its type; that has an annotation."""
    lines: list[str] = given[-1]
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)


class PublicNames(SphinxDirective):
    """All public names, a section each."""

    def run(self) -> list[nodes.Node]:
        """Their table and sections."""
        return self.parse_text_to_nodes(api_page(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.connect("autodoc-process-docstring", _no_type, priority=400)  # before napoleon
    app.add_directive("public-names", PublicNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
