#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2024.4"]
# ///
"""One entry for development: ``nox -l`` lists what there is. CI and users need only make."""

from __future__ import annotations

import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "uv|virtualenv"

_PARALLEL = ("-n", "auto", "--dist", "loadgroup")


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style, types and formatting."""
    session.run("make", "lint", external=True)


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """All tests, on every Python that perflib supports."""
    session.install("--editable", ".[dev]")
    session.run("pytest", *_PARALLEL, *session.posargs)


@nox.session(python="3.11", default=False)
def lowest(session: nox.Session) -> None:
    """All tests, on the oldest release of every dependency that pyproject.toml admits."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *extras["report"], *extras["lab"]]
    oldest = [bound.replace(">=", "==") for bound in required if ">=" in bound]
    constraints = Path(session.create_tmp(), "oldest.txt")
    constraints.write_text("\n".join(oldest), encoding="utf-8")
    session.install("--editable", ".[dev]", "--constraint", str(constraints))
    session.run("pytest", *_PARALLEL, *session.posargs)


@nox.session(venv_backend="none", default=False)
def notebooks(session: nox.Session) -> None:
    """The notebooks alone: nbval and papermill."""
    arguments = f"ARGS=-m '' tests/notebooks {' '.join(session.posargs)}"
    session.run("make", "test", arguments, external=True)


@nox.session(venv_backend="none", default=False)
def browser(session: nox.Session) -> None:
    """The form in JupyterLab in a headless Chromium."""
    session.run("make", "test", f"ARGS=tests/browser {' '.join(session.posargs)}", external=True)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """The source distribution and the wheel, in dist/."""
    session.install("build")
    session.run("python", "-m", "build")


if __name__ == "__main__":
    nox.main()
