"""Whether perf can name a job's Python functions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perflib.measure import python_jobs
from perflib.measure.python_jobs import PerfSupport, perf_support

Fake = Callable[..., Path]
FP = "-O2 -fno-omit-frame-pointer"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """An interpreter that gives a wanted answer, first on PATH."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    def make(file: str = "python3", *, script: str = "", **answer: Any) -> Path:
        path = tmp_path / "bin" / file
        path.parent.mkdir(exist_ok=True)
        said = {"name": "cpython", "version": [3, 12], "trampolines": True, "flags": FP} | answer
        path.write_text(f"#!/bin/sh\n{script}\ncat << 'EOF'\n{json.dumps(said)}\nEOF\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


def test_a_python_with_trampolines_and_frame_pointers(
    fake: Fake, environment: dict[str, str]
) -> None:
    fake()
    found = perf_support(["python3", "job.py"], environment)
    assert found == PerfSupport({"PYTHONPERFSUPPORT": "1"}, "fp", "")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"version": [3, 11], "trampolines": False}, "Python 3.11 has no perf trampolines"),
        ({"trampolines": False}, "was built without perf trampolines"),
        ({"flags": "-O3"}, "was built without frame pointers"),
        ({"name": "pypy"}, "is pypy, not CPython"),
    ],
)
def test_what_cannot_be_is_said(
    answer: dict[str, Any], said: str, fake: Fake, environment: dict[str, str]
) -> None:
    fake(**answer)
    found = perf_support(["python3", "job.py"], environment)
    assert found.variables == {}
    assert said in found.remark
    assert found.remark.endswith("as the interpreter's frames")


@pytest.mark.parametrize(
    "argv",
    [
        ["{bin}/python3.12", "-u", "job.py"],
        ["env", "A=1", "-u", "B", "python3.12", "job.py"],
        ["{bin}/direct", "x"],
        ["{bin}/through_env", "x"],
        ["{bin}/split", "x"],
        ["twice", "x"],
    ],
)
def test_the_interpreter_is_found(
    argv: list[str], fake: Fake, environment: dict[str, str], tmp_path: Path
) -> None:
    folder = fake("python3.12").parent
    for name, line in (
        ("direct", f"#!{folder}/python3.12 -u"),
        ("through_env", "#!/usr/bin/env python3.12"),
        ("split", "#!/usr/bin/env -S python3.12 -u"),
        ("twice", f"#!{folder}/direct"),
    ):
        (folder / name).write_text(f"{line}\nprint(1)\n")
        (folder / name).chmod(0o755)
    found = perf_support([word.format(bin=tmp_path / "bin") for word in argv], environment)
    assert found.variables == {"PYTHONPERFSUPPORT": "1"}


@pytest.mark.parametrize(
    "begin", ["", "#!\n", "#! \n", "#!/no/such/thing\n", "\x7fELF", "#!/bin/sh\n"]
)
def test_what_is_no_python_is_left_alone(
    begin: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    program = tmp_path / "program"
    program.write_text(begin)
    program.chmod(0o755)
    assert perf_support([str(program)], environment) == PerfSupport()


def test_a_script_that_is_its_own_interpreter_is_given_up(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!{program}\n")
    program.chmod(0o755)
    assert perf_support([str(program)], environment) == PerfSupport()
    assert perf_support([], environment) == PerfSupport()
    assert perf_support(["no-such-program"], environment) == PerfSupport()


@pytest.mark.parametrize("option", ["-I", "-E", "-uE", "-Wd -I"])
def test_a_python_that_ignores_variables(
    option: str, fake: Fake, environment: dict[str, str]
) -> None:
    fake()
    found = perf_support(["python3", *option.split(), "job.py"], environment)
    assert found.variables == {}
    assert "-X perf" in found.remark


@pytest.mark.parametrize("words", ["job.py -I", "-c I", "-m Engine -E", "-W E job.py", "-u - -I"])
def test_options_of_the_job_are_its_own(
    words: str, fake: Fake, environment: dict[str, str]
) -> None:
    fake()
    assert perf_support(["python3", *words.split()], environment).variables


@pytest.mark.parametrize("script", ["exit 3", "echo nonsense", "echo '[]'; exit 0", "sleep 60"])
def test_a_python_that_does_not_answer(
    script: str, fake: Fake, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_jobs, "_TIMEOUT_S", 0.5)
    fake(script=script)
    found = perf_support(["python3"], environment)
    assert found.variables == {}
    assert "did not say which Python it is" in found.remark
