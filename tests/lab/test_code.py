"""The kernels' code, for a notebook that shows it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perflib.lab.code import built, disassembly

needs_objdump = pytest.mark.skipif(
    shutil.which("objdump") is None, reason="objdump is missing: apt-get install binutils"
)


def test_a_library_and_a_program_of_one_kernel() -> None:
    library, program = built("kv"), built("kv", program=True)
    assert library.is_file()
    assert program.is_file()
    assert library != program


@needs_objdump
def test_a_functions_machine_code() -> None:
    listed = disassembly(built("kv"), "kv_run")
    assert list(listed) == ["address", "instruction"]
    assert listed["instruction"].str.contains("ret").any()


def test_where_nothing_is_seen_the_reason_stands_instead(tmp_path: Path) -> None:
    (row,) = disassembly(tmp_path / "no.so", "kv_run").to_dict("records")
    assert row["address"] == ""
    assert row["instruction"]
