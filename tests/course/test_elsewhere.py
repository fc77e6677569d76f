"""Each session of the course without Linux, a compiler or any program: on recorded data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from perflib.course.build import Handout, handouts, made
from perflib.framework.recordings import machine_for
from tests.course.running import SCORE, score
from tests.notebooks.forked import ROOT, errors
from tests.slow import mostly_slow

SESSIONS = [one for one in handouts() if one.place.parts[0] == "course"]
CASES = {f"{one.lesson.name}-{on}": (one, on) for one in SESSIONS for on in ("darwin", "win32")}


@pytest.mark.parametrize("case", mostly_slow(CASES, ["lines_and_locks-darwin"]))
def test_a_session_needs_python_alone(case: tuple[Handout, str], tmp_path: Path) -> None:
    """All cells run, solutions included, and earn all points that can be had without a compiler.

    What is hidden `tests.course.elsewhere` says: no real macOS or Windows ran it.
    """
    (one, system), path = case, tmp_path / "session.ipynb"
    notebook = nbformat.from_dict(made(one, "solution", machine_for(one.notebook)))  # type: ignore[no-untyped-call]
    notebook.cells.append(nbformat.v4.new_code_cell(SCORE))  # type: ignore[no-untyped-call]
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]
    argv = [sys.executable, "-m", "tests.course.elsewhere", system, str(path)]
    home = {"PERFLIB_HOME": str(tmp_path / "home"), "PERFLIB_PROGRESS": "none"}
    inline = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    ran = subprocess.run(
        argv, cwd=ROOT, env={**os.environ, **home, **inline}, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    done = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert not errors(done), errors(done)
    for name, row in score(done.cells[-1]).items():
        assert row["points"] == row["of"], (name, row["says"])


def test_the_course_has_nine_sessions() -> None:
    assert len(SESSIONS) == 9
