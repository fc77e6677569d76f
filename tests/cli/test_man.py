"""Manual pages: made from the commands' own help, and fit for a formatter."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from perflib.cli import cli
from perflib.cli.man import write


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("man")
    return {path.stem: path for path in write(folder, "1.2.3")}


def test_there_is_a_page_for_every_command(pages: dict[str, Path]) -> None:
    names = cli.list_commands(click.Context(cli))
    groups = ("perflib-fleet-", "perflib-course-", "perflib-threads-")
    below = {name for name in pages if name.startswith(groups)}
    assert {"perflib-fleet-plan", "perflib-fleet-run", "perflib-course-build"} <= below
    assert "perflib-fleet-job" not in pages  # engines call it
    assert set(pages) - below == {"perflib", *(f"perflib-{name}" for name in names)}
    top = pages["perflib"].read_text(encoding="utf-8")
    for name in names:
        escaped = name.replace("-", "\\-")
        assert f"\\fBperflib\\-{escaped}(1)\\fR" in top


def test_a_page_has_the_options_and_examples_of_the_help(pages: dict[str, Path]) -> None:
    text = pages["perflib-run"].read_text(encoding="utf-8")
    assert '.TH "PERFLIB-RUN" "1" "" "perflib 1.2.3" "perflib"' in text
    assert "\\fB\\-\\-preset quick|full\\fR" in text
    assert "\\-\\-profile" not in text
    assert "perflib run kv_per_core \\-\\-preset quick" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff: nothing can format a page")
def test_a_formatter_finds_nothing_wrong(pages: dict[str, Path]) -> None:
    argv = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", *map(str, pages.values())]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "perflib investigate --job 'simulate --skip {first} --events {events}' \\" in done.stdout
