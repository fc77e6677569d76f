"""What ``perflib lab`` starts; JupyterLab itself is started by the tests in a browser."""

from __future__ import annotations

import os
from pathlib import Path

import click.testing
import pytest

from perflib.cli import cli


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    calls: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, argv: calls.append(argv))
    return calls


def test_it_begins_with_the_start_page(started: list[list[str]], tmp_path: Path) -> None:
    done = click.testing.CliRunner().invoke(cli, ["lab", str(tmp_path / "mine"), "--port=9"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "mine" / "home.ipynb").is_file()
    first = "--LabApp.default_url=/lab/tree/home.ipynb"
    assert started[0][-3:] == [str(tmp_path / "mine"), first, "--port=9"]
