"""What two builds' files say: the same code, renamed, moved, split, inlined functions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perflib.instruments.profile.builds import facts_of, same_code

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("cc", "objdump", "nm"))), reason="it takes a compiler and binutils"
)

_OWN = "__attribute__((noinline)) static"
_WORK = "{ for (int i = 0; i < 1000; i++) x = x * 77 + (x >> 2) % LIMIT; return x; }"
_OTHER = "{ for (int i = 0; i < 900; i++) { x ^= x << 13; x ^= x >> 7; x += i; } return x; }"


def program(folder: Path, text: str, *flags: str, name: str = "job") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "job.c").write_text(text)
    argv = ["cc", "-O1", "-g", "-DLIMIT=9", *flags, "job.c", "-o", name]
    subprocess.run(argv, cwd=folder, check=True)
    return folder / name


def source(first: str = "work", second: str = "other", inline: str = _OWN) -> str:
    return (
        f"#include <stdlib.h>\n{inline} unsigned {first}(unsigned x) {_WORK}\n"
        f"{_OWN} unsigned {second}(unsigned x) {_OTHER}\n"
        f"int main(void) {{ return {first}(rand()) + {second}(3) == 7; }}\n"
    )


def sampled(path: Path, *names: str, count: int = 100) -> pd.DataFrame:
    return pd.DataFrame({"symbol": names, "object": str(path), "offset": 4, "count": count})


def facts(a: Path, b: Path, in_a: tuple[str, ...], in_b: tuple[str, ...]) -> dict[str, Any]:
    return facts_of({"A": sampled(a, *in_a), "B": sampled(b, *in_b)}, {"A": str(a), "B": str(b)})


@pytest.mark.parametrize("flag", ["-falign-functions=64", "-falign-loops=32"])
def test_code_that_only_moved_is_the_same(tmp_path: Path, flag: str) -> None:
    a = program(tmp_path / "a", source(), "-falign-functions=1")
    b = program(tmp_path / "b", source(), flag)
    assert same_code(a, b) is True


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (source(), ["-DLIMIT=11"]),
        (source(), ["-O0"]),
        (source().replace("rand())", "rand() + 1)"), []),
        (source() + 'const char said[] = "new"; const char *volatile all = said;', []),
    ],
)
def test_code_or_constants_that_differ_are_seen(
    tmp_path: Path, text: str, flags: list[str]
) -> None:
    a, b = program(tmp_path / "a", source()), program(tmp_path / "b", text, *flags)
    assert same_code(a, b) is False


def test_of_a_script_nothing_is_known(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    assert same_code(script, program(tmp_path / "b", source())) is None


def test_a_renamed_function_is_found_by_its_code(tmp_path: Path) -> None:
    a, b = program(tmp_path / "a", source()), program(tmp_path / "b", source(first="novel"))
    found = facts(a, b, ("work", "other"), ("novel", "other"))
    assert found["changes"] == [
        {"function": "work", "kind": "renamed", "first": "work", "second": "novel"}
    ]
    assert found["functions"] == {"other": "same"}


def test_an_inlined_function_is_found_by_its_lines(tmp_path: Path) -> None:
    a = program(tmp_path / "a", source())
    b = program(tmp_path / "b", source(inline="__attribute__((always_inline)) static inline"))
    (change,) = facts(a, b, ("work", "other"), ("main", "other"))["changes"]
    assert change == {"function": "work", "kind": "inlined", "first": "work", "second": "main"}
    (back,) = facts(b, a, ("main", "other"), ("work", "other"))["changes"]
    assert back == {"function": "work", "kind": "inlined", "first": "main", "second": "work"}


def test_a_function_in_another_library(tmp_path: Path) -> None:
    a = program(tmp_path / "a", source())
    shared = program(tmp_path / "b", source(), "-shared", "-fPIC", name="libjob.so")
    samples = {"A": sampled(a, "work", "other"), "B": sampled(shared, "work")}
    samples["B"] = pd.concat([samples["B"], sampled(a, "other")])
    (change,) = facts_of(samples, {"A": str(a), "B": str(a)})["changes"]
    assert change == {
        "function": "work", "kind": "moved", "first": "the program", "second": "libjob.so",
    }  # fmt: skip


def test_a_part_of_a_function_is_that_function(tmp_path: Path) -> None:
    text = source().replace("work(", "PART(")
    b = program(tmp_path / "b", text, "-DPART=work")
    subprocess.run(["objcopy", "--redefine-sym", "work=work.constprop.0", b], check=True)
    a = program(tmp_path / "a", source())
    (change,) = facts(a, b, ("work",), ("work.constprop.0",))["changes"]
    assert (change["function"], change["kind"]) == ("work", "split")


def test_lines_have_the_numbers_of_the_first_build(tmp_path: Path) -> None:
    a = program(tmp_path / "a", source())
    b = program(tmp_path / "b", "/* new */\n\n" + source())
    found = facts(a, b, ("work",), ("work",))["lines"]
    assert {line for _, line in found["A"]["work"]} == {line for _, line in found["B"]["work"]}
