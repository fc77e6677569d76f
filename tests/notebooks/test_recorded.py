"""Every notebook on recorded data, with its solutions open: what its cells show is compared.

After a change that is meant: ``python -m tests.notebooks.expected NAME``, and look at the diff.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks.comparing import (
    EXPECTED,
    NOTEBOOKS,
    copy_of,
    differing,
    expected_of,
    name_of,
    sanitised,
    shown,
)
from tests.notebooks.forked import ForkServer
from tests.slow import mostly_slow

pytestmark = pytest.mark.xdist_group("notebooks")
ROOT = Path(__file__).parents[2]
_MAX_KIB = 60
_MIN_COMPARED = 0.5  # of the cells with text: the others describe this machine, or are widgets
_BY_NBVAL = "17_layout"
_OF_PACKAGES = {"02_event_profile", "11_aliasing_allocators"}  # and others, slow


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_every_cell_shows_the_same_tables_and_verdicts(
    server: ForkServer, path: Path, tmp_path: Path
) -> None:
    found = differing(shown(server, path, tmp_path), expected_of(path))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "path", mostly_slow({name_of(path): path for path in NOTEBOOKS}, _OF_PACKAGES)
)
def test_what_is_compared_knows_neither_the_machine_nor_its_packages(
    server: ForkServer, path: Path, tmp_path: Path
) -> None:
    """Another processor, another allocator, and no perf, valgrind or compiler."""
    found = differing(shown(server, path, tmp_path, another=True), expected_of(path))
    assert not found, "\n".join(found)


def nbval(path: Path, expected: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """The notebook's cells in a kernel of their own, as nbval compares them."""
    copy_of(path, expected, folder / path.name)
    environment = {
        **os.environ,
        "PERFLIB_HOME": str(folder / "home"),
        "PERFLIB_PROGRESS": "none",
        "PERFLIB_SOLUTIONS": "1",
        # As in JupyterLab, a figure is closed after its cell: the next one draws into its own.
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    argv += ["-p", "tests.notebooks.comparing", "--nbval-current-env", "--nbval-cell-timeout=240"]
    argv += ["-c", os.devnull, f"--rootdir={folder}", str(folder)]
    return subprocess.run(
        argv, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )


def test_nbval_agrees_and_finds_a_difference(tmp_path: Path) -> None:
    """A kernel of its own shows what the forks show, all but the one cell that we change."""
    (path,) = (one for one in NOTEBOOKS if name_of(one) == _BY_NBVAL)
    expected = expected_of(path)
    lesson = expected["lesson"]
    assert lesson
    ((kind, text),) = lesson[0].items()
    expected["lesson"] = [{kind: text.replace("you can", "you cannot")}]
    done = nbval(path, expected, tmp_path)
    assert done.returncode == 1, done.stdout[-6000:] + done.stderr[-2000:]
    assert "Cell outputs differ" in done.stdout
    assert "1 failed, " in done.stdout
    assert differing({"lesson": lesson}, expected)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_most_of_what_is_shown_is_compared(path: Path) -> None:
    expected = expected_of(path)
    compared = [cell for cell, outputs in expected.items() if outputs]
    assert len(compared) > _MIN_COMPARED * len(expected), set(expected) - set(compared)
    assert (EXPECTED / f"{name_of(path)}.json").stat().st_size < _MAX_KIB * 1024


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_every_solution_is_right(path: Path) -> None:
    """What the checks are expected to say."""
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    checks = [cell.id for cell in notebook.cells if "check" in cell.metadata.get("tags", [])]
    assert checks
    said = {cell: json.dumps(expected_of(path)[cell], ensure_ascii=False) for cell in checks}
    assert {cell for cell, words in said.items() if not {"✔", "●"} & {*words}} == set()


def test_nothing_is_expected_of_a_notebook_that_is_gone() -> None:
    assert {file.stem for file in EXPECTED.glob("*.json")} == {name_of(path) for path in NOTEBOOKS}


def test_what_is_compared_is_rounded_and_its_columns_have_no_width() -> None:
    assert sanitised("   a   12.3456\nb   -0.00  1e-12") == "a 12.3\nb 0 1e-12"
    assert sanitised("x 3.20000000001 ms") == sanitised("x  3.2 ms")
    assert sanitised("<object at 0x7f00aa11bb22>") == "<object at 0x>"
    assert sanitised("version 1.26.4, cpu1") == "version 1.26.4, cpu1"
    slow, quick = (f"x-20261123-recorded-e64fa61b3n   {seconds}\ny 1" for seconds in (11, 0))
    assert sanitised(slow) == sanitised(quick)
    once = sanitised("1234.5678 and 0.1 [0.09999, 1.5e-08]")
    assert sanitised(once) == once
