"""Compiling on demand: flags, variants, programs, the cache, and every way in which it fails."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perflib import kernels
from perflib.model.errors import MeasurementError, UserError
from perflib.store import paths
from tests.kernels.here import ASK, launched

HERE = Path(__file__).parents[1] / "kernels_c"

SMALL = """/* A kernel of one function.
 *
 * @kernel
 * flags = ["-O1"]
 */
#include "common/answer.h"
// @interface
int small_answer(void);
// @end
int small_answer(void) { return ANSWER; }
"""

# Each call of the compiler leaves its arguments and its whole environment in files of their own.
RECORDER = """#!/bin/sh
printf '%s\\n' "$@" > "{log}/$$.argv"
tr '\\0' '\\n' < /proc/$$/environ > "{log}/$$.environment"
{before}
exec {compiler} "$@"
"""

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of kernels that the test may write to; ``small`` is in it."""
    made = tmp_path / "kernels"
    (made / "common").mkdir(parents=True)
    (made / "small.c").write_text(SMALL)
    (made / "common" / "answer.h").write_text("#define ANSWER 42\n")
    monkeypatch.setattr(paths, "kernels_dir", lambda: made)
    return made


def calls(log: Path) -> list[tuple[list[str], dict[str, str]]]:
    """Arguments and environment of each compilation (not of questions about the version)."""
    found = []
    for path in log.glob("*.argv"):
        lines = path.with_suffix(".environment").read_text().splitlines()
        found.append((path.read_text().splitlines(), dict(line.split("=", 1) for line in lines)))
    return [call for call in found if call[0] != ["--version"]]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a compiler that logs its calls the one to use."""

    def install(before: str = "") -> Path:
        log = tmp_path / "log"
        log.mkdir()
        script = tmp_path / "recording-cc"
        found = shutil.which("gcc") or shutil.which("cc")
        script.write_text(RECORDER.format(log=log, before=before, compiler=found))
        script.chmod(0o755)
        monkeypatch.setenv("PERFLIB_CC", str(script))
        return log

    return install


def ask(*names: str, **environment: str) -> list[subprocess.CompletedProcess[str]]:
    """Processes that all ask at once, one kernel each."""

    def answer(name: str) -> subprocess.CompletedProcess[str]:
        words = (sys.executable, "-c", ASK, kernels.source(name).path.parent, name)
        return launched(*words, env={**os.environ, **environment})

    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(answer, names))


# --- what is built -----------------------------------------------------------------------------


def test_declared_flags_are_used_and_a_variant_changes_them() -> None:
    plain, slow = kernels.load("declared"), kernels.load("declared", variant="slow")
    assert (plain.lib.declared_level(), plain.lib.declared_optimised()) == (2, 1)
    assert (slow.lib.declared_level(), slow.lib.declared_optimised()) == (0, 0)
    assert plain.lib.declared_root(2.25) == 1.5
    static = kernels.build("declared", variant="static")
    assert static.provenance["flags"] == plain.build.provenance["flags"]
    assert static.provenance["link"] == ["-lm", "-Wl,-z,now"]
    assert len({plain.build.library, slow.build.library, static.library}) == 3


def test_executable_is_a_program_of_its_own_and_has_variants() -> None:
    program = kernels.build("declared", executable=True)
    slow = kernels.build("declared", executable=True, variant="slow")
    assert program.module is None
    done = launched(program.library, "x")
    assert (done.stdout, done.returncode) == ("level 2 of x\n", 3)
    assert launched(slow.library).stdout == "level 0 of nothing\n"
    assert kernels.build("declared").library != program.library


def sized(folder: Path, declared: str = "SIZE = 3") -> None:
    """Make ``small`` a kernel with a definition, which its function returns."""
    text = SMALL.replace(" */\n", f" * [define]\n * {declared}\n */\n", 1)
    folder.joinpath("small.c").write_text(text.replace("return ANSWER;", "return SIZE;"))


def test_definition_has_its_declared_value_or_the_one_given(
    folder: Path, recorded: Callable[..., Path]
) -> None:
    log = recorded()
    sized(folder)
    declared = kernels.load("small")
    given = kernels.load("small", define={"SIZE": 70000})
    assert (declared.lib.small_answer(), given.lib.small_answer()) == (3, 70000)
    assert declared.build.provenance["define"] == {"SIZE": 3}
    assert given.build.provenance["define"] == {"SIZE": 70000}
    assert declared.build.library != given.build.library
    assert kernels.build("small", define={"SIZE": 3}) == declared.build
    assert kernels.build("small", define={}) == declared.build
    assert len(calls(log)) == 2
    assert all(argv[3] == "-O1" and argv[4].startswith("-DSIZE=") for argv, _ in calls(log))


def test_definition_that_is_not_declared_names_the_nearest(folder: Path) -> None:
    sized(folder)
    unknown = "unknown definition of kernel 'small' 'SZIE': did you mean 'SIZE'"
    with pytest.raises(UserError, match=unknown):
        kernels.build("small", define={"SZIE": 4})
    folder.joinpath("small.c").write_text(SMALL)
    with pytest.raises(UserError, match=r"definition of kernel 'small' 'SIZE' .there are none"):
        kernels.load("small", define={"SIZE": 4})


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "2", None])
def test_definition_is_a_positive_whole_number(folder: Path, value: Any) -> None:
    sized(folder)
    with pytest.raises(UserError, match="'small': SIZE must be a positive whole number, not"):
        kernels.build("small", define={"SIZE": value})
    sized(folder, "SIZE = 'three'")
    with pytest.raises(UserError, match="SIZE must be a positive whole number, not 'three'"):
        kernels.build("small")


# --- what makes it anew, and what does not ------------------------------------------------------


@pytest.mark.usefixtures("cache", "folder")
def test_found_again_without_a_compilation(recorded: Callable[..., Path]) -> None:
    log = recorded()
    first = kernels.load("small")
    assert len(calls(log)) == 1
    again = kernels.load("small")
    assert (first.build, first.lib.small_answer()) == (again.build, 42)
    (other,) = ask("small")
    assert other.stdout == f"{first.build.library}\n"
    assert len(calls(log)) == 1


@pytest.mark.parametrize("changed", ["small.c", "common/answer.h"])
def test_changed_source_or_header_is_compiled_anew(folder: Path, changed: str) -> None:
    before = kernels.load("small")
    file = folder / changed
    new = file.read_text().replace("42", "43").replace("return ANSWER", "return ANSWER + 1")
    file.write_text(new)
    after = kernels.load("small")
    assert (before.lib.small_answer(), after.lib.small_answer()) == (42, 43)
    assert before.build.provenance["source_sha256"] != after.build.provenance["source_sha256"]


@pytest.mark.usefixtures("cache", "folder")
def test_kernel_whose_files_were_cleaned_away_is_made_again() -> None:
    built = kernels.build("small")
    built.library.unlink()
    assert kernels.build("small") == built
    assert built.library.is_file()


def test_nothing_of_the_environment_reaches_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: Callable[..., Path]
) -> None:
    plain = kernels.build("declared").provenance["flags"]
    log = recorded()
    trap = tmp_path / "trap"
    trap.mkdir()
    trap.joinpath("math.h").write_text("#error the environment's header was read\n")
    for name in ("CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"):
        monkeypatch.setenv(name, str(trap))
    for name in ("CFLAGS", "CPPFLAGS", "LDFLAGS", "CC_FLAGS"):
        monkeypatch.setenv(name, "-DLEVEL=9 -O3")
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    kernel = kernels.load("declared")
    assert kernel.lib.declared_level() == 2
    assert kernel.build.provenance["flags"] == plain
    (((*flags, include, pic, shared, source, o, target, link), environment),) = calls(log)
    assert flags == ["-std=gnu11", "-Wall", "-Wextra", "-O2", "-DLEVEL=2"]
    assert (include, pic, shared, o, link) == (f"-I{HERE}", "-fPIC", "-shared", "-o", "-lm")
    assert source == str(HERE / "declared.c")
    assert Path(target).name == "declared.so"
    assert set(environment) == {"PATH", "LC_ALL", "TMPDIR"}
    assert environment["LC_ALL"] == "C"


def test_processes_that_ask_at_once_compile_once(recorded: Callable[..., Path]) -> None:
    log = recorded(before="sleep 0.3")
    done = ask("declared", "declared", "declared")
    assert [process.returncode for process in done] == [0, 0, 0], done[0].stderr
    assert len({process.stdout for process in done}) == 1
    assert len(calls(log)) == 1


# --- what fails --------------------------------------------------------------------------------


def test_unknown_kernel_or_variant_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown kernel 'declraed': did you mean 'declared'"):
        kernels.build("declraed")
    with pytest.raises(UserError, match="variant of kernel 'declared' 'slwo': did you mean 'slow'"):
        kernels.build("declared", variant="slwo")


def test_compile_error_shows_the_compilers_words_and_the_line(folder: Path, cache: Path) -> None:
    source = folder / "small.c"
    source.write_text(SMALL.replace("return ANSWER;", "return ANSWR;"))
    with pytest.raises(MeasurementError, match="kernel 'small' does not compile") as caught:
        kernels.build("small")
    line = SMALL.splitlines().index("int small_answer(void) { return ANSWER; }") + 1
    assert f"small.c:{line}:" in str(caught.value)
    assert "ANSWR" in str(caught.value)
    assert "return ANSWR;" in str(caught.value), "the source line is quoted"
    left = [path.name for path in cache.iterdir() if path.is_dir()]
    assert left == [], "nothing half built stays"
    source.write_text(SMALL)
    assert kernels.load("small").lib.small_answer() == 42


@pytest.mark.parametrize(
    ("find", "instead", "complaint"),
    [
        ("@kernel", "kernel", "no '@kernel' part"),
        ("/* A kernel", "int x; /* A kernel", "no '@kernel' part"),
        ('["-O1"]', '["-O1"', "no TOML"),
        ("// @interface", "", "no declarations between '// @interface' and '// @end'"),
    ],
)
def test_bad_declaration_names_the_file(
    folder: Path, find: str, instead: str, complaint: str
) -> None:
    folder.joinpath("small.c").write_text(SMALL.replace(find, instead))
    with pytest.raises(UserError, match=complaint) as caught:
        kernels.build("small")
    assert str(folder / "small.c") in str(caught.value)


def test_interface_that_cffi_cannot_read_names_the_file(folder: Path, cache: Path) -> None:
    folder.joinpath("small.c").write_text(
        SMALL.replace("int small_answer(void);", "__typeof__(1) small_answer(void);")
    )
    with pytest.raises(MeasurementError, match="cffi cannot read the declarations") as caught:
        kernels.build("small")
    assert "small.c" in str(caught.value)
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_only_a_kernel_with_a_copied_part_is_repeated() -> None:
    with pytest.raises(UserError, match="declares no 'copied' part"):
        kernels.build("declared", copies=2)


def test_no_compiler_on_path_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERFLIB_CC", raising=False)
    (done,) = ask("declared", PATH=str(tmp_path))
    assert "UserError: no C compiler: none of gcc, cc, clang is on PATH" in done.stderr
    for command in ("apt-get install gcc libc6-dev", "dnf install gcc", "conda install"):
        assert command in done.stderr
    assert done.stdout == ""
    monkeypatch.setenv("PERFLIB_CC", "no-such-cc")
    with pytest.raises(UserError, match="PERFLIB_CC='no-such-cc' is no program on PATH"):
        kernels.build("declared")


# --- the cache is the user's alone --------------------------------------------------------------


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_cache_is_private_and_is_made_so(cache: Path) -> None:
    cache.mkdir(mode=0o755)
    built = kernels.build("declared")
    assert mode(cache) == mode(built.library.parent) == 0o700


def test_generous_umask_makes_no_kernel_that_is_refused(cache: Path) -> None:
    """Many distributions give users the umask 002: what the compiler writes is group-writable."""
    before = os.umask(0o002)
    try:
        built = kernels.build("declared")
        assert kernels.build("declared") == built
        program = kernels.build("declared", executable=True)
    finally:
        os.umask(before)
    assert built.module is not None
    for file in (built.library, built.module, program.library):
        assert not mode(file) & 0o022
    assert launched(program.library).returncode == 3
    (done,) = ask("declared")  # which also reads the remembered version of the compiler
    assert done.stdout == f"{built.library}\n"
    assert not any(mode(file) & 0o022 for file in cache.iterdir())


def test_what_others_could_have_written_is_refused(cache: Path) -> None:
    built = kernels.build("declared")
    for path in (built.library, built.module, built.library.parent, cache):
        assert path is not None
        right = mode(path)
        for wrong in (0o770, 0o702):
            path.chmod(wrong)
            with pytest.raises(UserError, match=f"can be written by others .mode {wrong:o}"):
                kernels.build("declared")
        path.chmod(right)
    assert kernels.build("declared") == built


def test_cache_that_cannot_be_a_folder_is_refused(cache: Path) -> None:
    cache.write_text("")
    with pytest.raises(UserError, match=r"the kernel cache cannot be used.*PERFLIB_CACHE"):
        kernels.build("declared")


# --- pieces ------------------------------------------------------------------------------------


@pytest.fixture
def large(folder: Path) -> Path:
    for name in ("large.c", "large_piece.inc"):
        shutil.copy(HERE / name, folder)
    folder.joinpath("common", "times.h").write_text("#define TIMES 10\n")
    return folder


def numbers(variant: str | None) -> list[int]:
    kernel = kernels.load("large", variant=variant)
    out = kernel.ffi.new("int[8]")
    count = kernel.lib.large_numbers(out)
    return list(out)[:count]


@pytest.mark.usefixtures("cache", "large")
def test_pieces_are_linked_in_their_order_in_their_variant_alone() -> None:
    assert numbers("large") == [0, 10, 20, 30, 40]
    assert numbers(None) == []
    built = kernels.build("large", variant="large").library.parent
    assert not list(built.glob("*.o"))
