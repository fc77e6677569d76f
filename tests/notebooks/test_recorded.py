"""Every notebook on recorded data, with its solutions open: nbval compares what its cells show.

After a change that is meant: ``python -m tests.notebooks.expected NAME``, and look at the diff.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.notebooks.comparing import EXPECTED, NOTEBOOKS, copy_of, expected_of, name_of, sanitised

ROOT = Path(__file__).parents[2]
_MOST_KIB = 60
_COMPARED = 0.5  # of the cells that show text: the others depend on this machine, or are widgets


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_nbval_finds_the_same_tables_and_verdicts(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_of(path, expected_of(path), tmp_path / path.name)
    monkeypatch.setenv("PERFLIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERFLIB_PROGRESS", "none")
    monkeypatch.setenv("PERFLIB_SOLUTIONS", "1")
    # As in JupyterLab, a figure is closed after its cell: the next one draws into its own.
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    argv += ["-p", "tests.notebooks.comparing", "--nbval-current-env", "--nbval-cell-timeout=240"]
    argv += ["-c", os.devnull, f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_most_of_what_is_shown_is_compared(path: Path) -> None:
    expected = expected_of(path)
    compared = [cell for cell, outputs in expected.items() if outputs]
    assert len(compared) > _COMPARED * len(expected), set(expected) - set(compared)
    assert (EXPECTED / f"{name_of(path)}.json").stat().st_size < _MOST_KIB * 1024


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_every_solution_is_right(path: Path) -> None:
    """What the checks are expected to say."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    checks = [cell.id for cell in notebook.cells if "check" in cell.metadata.get("tags", [])]
    assert checks
    said = {cell: json.dumps(expected_of(path)[cell], ensure_ascii=False) for cell in checks}
    assert {cell for cell, words in said.items() if "✔" not in words} == set()


def test_nothing_is_expected_of_a_notebook_that_is_gone() -> None:
    assert {file.stem for file in EXPECTED.glob("*.json")} == {name_of(path) for path in NOTEBOOKS}


def test_what_is_compared_is_rounded_and_its_columns_have_no_width() -> None:
    assert sanitised("   a   12.3456\nb   -0.00  1e-12") == "a 12.3\nb 0 1e-12"
    assert sanitised("x 3.20000000001 ms") == sanitised("x  3.2 ms")
    assert sanitised("<object at 0x7f00aa11bb22>") == "<object at 0x>"
    assert sanitised("version 1.26.4, cpu1") == "version 1.26.4, cpu1"
    once = sanitised("1234.5678 and 0.1 [0.09999, 1.5e-08]")
    assert sanitised(once) == once


def test_a_difference_is_found(tmp_path: Path) -> None:
    """A verdict that is another one fails: nbval really compares."""
    path = next(one for one in NOTEBOOKS if "code_segment" in one.stem)
    expected = {cell: outputs for cell, outputs in expected_of(path).items() if cell == "lesson"}
    assert expected["lesson"]
    ((kind, text),) = expected["lesson"][0].items()
    expected["lesson"] = [{kind: text.replace("you can", "you cannot")}]
    copy_of(path, expected, tmp_path / path.name)
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--nbval"]
    argv += ["-p", "tests.notebooks.comparing", "--nbval-current-env", "-c", os.devnull]
    argv += [f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert "Cell outputs differ" in done.stdout
