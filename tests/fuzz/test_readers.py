"""The C readers, with every input that fuzzing kept, under the sanitizers that gcc has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perflib.kernels import compiler
from tests.fuzz.readers import CORPUS, FOLDER, NO_LEAKS, READERS, compiled


@pytest.fixture(scope="module", params=READERS)
def reader(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def program(reader: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, _ = compiler()
    folder = tmp_path_factory.mktemp(reader)
    try:
        return compiled(path, folder, reader, FOLDER / "replay.c")
    except subprocess.CalledProcessError as error:
        if "asan" in error.stderr or "ubsan" in error.stderr or "-fsanitize" in error.stderr:
            pytest.skip(f"no sanitizers: {error.stderr.splitlines()[-1]}")
        raise


def replayed(program: Path, files: list[Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *files], capture_output=True, text=True, check=False, env=os.environ | NO_LEAKS
    )


def test_no_input_of_the_corpus_is_a_finding(reader: str, program: Path) -> None:
    files = sorted((CORPUS / reader).iterdir())
    assert len(files) > 20
    done = replayed(program, files)
    assert done.returncode == 0, f"{done.stdout.splitlines()[-1:]}: {done.stderr}"
    assert done.stdout.splitlines() == [str(file) for file in files]


def test_an_empty_input(program: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert replayed(program, [empty]).returncode == 0
