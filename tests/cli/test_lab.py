"""What ``perflib lab`` starts; JupyterLab itself is started by the tests in a browser."""

from __future__ import annotations

import os
from pathlib import Path

import click.testing
import pytest

from perflib.cli import cli


def test_it_begins_with_the_start_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, argv: started.append(argv))
    done = click.testing.CliRunner().invoke(cli, ["lab", str(tmp_path / "mine"), "--port=9"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "mine" / "home.ipynb").is_file()
    first = "--LabApp.default_url=/lab/tree/home.ipynb"
    assert started[0][-3:] == [str(tmp_path / "mine"), first, "--port=9"]
