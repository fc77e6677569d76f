"""perflib_bracket.h: made of ours, compiles as C99 and C++11, and its samples are read back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from perflib.experiments import get
from perflib.framework.brackets import BRACKET_COLUMNS
from perflib.kernels.single_header import single_header
from perflib.store.run_files import read_table

WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-O2"]
PROGRAM = Path(__file__).with_name("bracketed_job.c").read_text()
OTHER = Path(__file__).with_name("bracketed_other.c").read_text()
LANGUAGES = {"c": ["gcc", "-std=c99"], "cc": ["g++", "-std=c++11"]}


@pytest.mark.parametrize("suffix", LANGUAGES)
def test_samples_of_all_threads_and_files_are_written(tmp_path: Path, suffix: str) -> None:
    compiler = LANGUAGES[suffix]
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    (tmp_path / "perflib_bracket.h").write_text(single_header())
    (tmp_path / f"main.{suffix}").write_text(PROGRAM)
    (tmp_path / f"other.{suffix}").write_text(OTHER)
    subprocess.run(
        [*compiler, *WARNINGS, f"main.{suffix}", f"other.{suffix}", "-o", "job", "-pthread"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    file = tmp_path / "samples.csv"
    usual = {name: value for name, value in os.environ.items() if name != "PERFLIB_SAMPLES"}
    subprocess.run([tmp_path / "job"], check=True, env=usual)
    assert not file.exists()
    for _ in range(2):  # the second run is appended
        subprocess.run([tmp_path / "job"], check=True, env={**usual, "PERFLIB_SAMPLES": str(file)})
    taken = get("bracketed").check_samples(read_table(file))
    counts = taken[taken["name"] != "child"].groupby(["name", "process"]).size()
    assert counts.groupby("name").agg(list).to_dict() == {
        "first": [30, 30], "second": [30, 30], 'a, "quoted" name': [60, 60],
        "other file": [60, 60],
    }  # fmt: skip
    known = [one.name for one in BRACKET_COLUMNS if one.name in taken]
    assert {"probe_before_ns", "chain_after_ns", "cpu_time_ns"} <= set(known)
    assert taken["time_ns"].gt(0).all()
