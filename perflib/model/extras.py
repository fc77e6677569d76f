"""Which packages are optional, and what installs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from perflib.model.errors import UserError

# By extra: the modules that it brings. pyproject.toml declares the same: tests compare them.
EXTRAS = {
    "report": ("jinja2", "matplotlib", "seaborn"),
    "lab": (
        "IPython",
        "anywidget",
        "ipykernel",
        "ipywidgets",
        "jupyterlab",
        "papermill",
        "pyarrow",
        "traitlets",
        "yaml",
    ),
    "fleet": ("snakemake", "snakemake_executor_plugin_slurm"),
    "hep": ("pythia8mc",),
}


def _sentence(module: str) -> str | None:
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    if extra is None:
        return None
    return f"this needs {module}, which is not installed: pip install 'perflib-jupyter[{extra}]'"


def need(module: str) -> None:
    """See that an optional package that is run, not imported, is there.

    Raises
    ------
    UserError
        It is not installed; the message has the line that installs it.
    """
    if importlib.util.find_spec(module) is None:
        raise UserError(_sentence(module) or f"{module} is not installed")


@contextmanager
def installed() -> Iterator[None]:
    """What happens inside may import optional packages.

    Raises
    ------
    UserError
        One is not installed; the message has the line that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = _sentence((error.name or "").partition(".")[0])
        if sentence is None:
            raise
        raise UserError(sentence) from error
