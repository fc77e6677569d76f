"""Which BLAS libraries there are: files found, second interfaces left out, names, refusals."""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from perflib.machine.libraries import blas
from perflib.machine.libraries.blas import Blas, blas_libraries, candidates, chosen, probe
from perflib.machine.libraries.blas_probe import describe
from perflib.model.errors import UserError

C_SOURCE = Path(__file__).parents[2] / "kernels_c" / "threaded_blas.c"


def tree(root: Path, *files: str) -> list[Path]:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [root / file for file in files]


def names(root: Path, python: Path, environment: dict[str, str] | None = None) -> list[str]:
    return [path.name for path in candidates(root, environment or {}, python)]


# --- files ---------------------------------------------------------------------------------------


def test_debians_folders_are_searched_and_second_interfaces_left_out(tmp_path: Path) -> None:
    folder = "usr/lib/x86_64-linux-gnu"
    tree(
        tmp_path,
        f"{folder}/openblas-pthread/libopenblasp-r0.3.21.so",
        f"{folder}/openblas-pthread/libblas.so.3",
        f"{folder}/openblas-pthread/liblapack.so.3",
        f"{folder}/blis-pthread/libblis.so.4",
        f"{folder}/blis-pthread/libblas.so.3",
        f"{folder}/blas/libblas.so.3.11.0",
        f"{folder}/libm.so.6",
        f"{folder}/libblasting_paper.txt",
    )
    (tmp_path / folder / "libopenblas.so.0").symlink_to("openblas-pthread/libopenblasp-r0.3.21.so")
    assert sorted(names(tmp_path, tmp_path / "no-python")) == [
        "libblas.so.3.11.0", "libblis.so.4", "libopenblasp-r0.3.21.so",
    ]  # fmt: skip


def test_pythons_own_and_named_folders_are_searched(tmp_path: Path) -> None:
    python, mkl, mine = tmp_path / "python", tmp_path / "mkl", tmp_path / "mine"
    tree(python, "lib/python3.11/site-packages/numpy.libs/libscipy_openblas64_-32a4b2a6.so")
    tree(python, "lib/libmkl_rt.so.2")
    tree(mkl, "lib/libmkl_rt.so.2")
    tree(mine, "libopenblas_haswellp-r0.3.9.so")
    environment = {"MKLROOT": str(mkl), "LD_LIBRARY_PATH": f"{mine}:{tmp_path / 'absent'}:"}
    assert names(tmp_path / "nothing", python, environment) == [
        "libscipy_openblas64_-32a4b2a6.so", "libmkl_rt.so.2", "libopenblas_haswellp-r0.3.9.so",
        "libmkl_rt.so.2",
    ]  # fmt: skip


# --- what they are -------------------------------------------------------------------------------


def test_numpys_own_library_says_what_it_is() -> None:
    found = [path for path in candidates() if path.parent.name == "numpy.libs"]
    if not found:
        pytest.skip("numpy brings no BLAS of its own here")
    (library,), refused = probe(found)
    assert refused == {}
    assert library.name == "openblas-numpy"
    assert library.kind == "openblas"
    assert library.dgemv.endswith("64_")
    assert library.set_threads.endswith("openblas_set_num_threads64_")
    assert library.version
    assert library.core_type
    (other,), _ = probe(found, {"OPENBLAS_CORETYPE": "Haswell"})
    assert other.core_type == "Haswell"


@pytest.fixture(scope="module")
def plain_blas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc: apt-get install gcc")
    path = tmp_path_factory.mktemp("blas") / "libblas.so"
    argv = ["gcc", "-shared", "-fPIC", str(C_SOURCE), "-lpthread", "-o", str(path)]
    subprocess.run(argv, check=True)
    return path


def test_a_library_that_gives_no_sign_is_the_reference(plain_blas: Path) -> None:
    (library,), _ = probe([plain_blas])
    expected = Blas("reference", "reference", str(plain_blas), "cblas_dgemv", "")
    assert library == expected


def test_equal_names_are_distinguished(plain_blas: Path, tmp_path: Path) -> None:
    other = tmp_path / "libblas-other.so"
    shutil.copy(plain_blas, other)
    libraries, _ = probe([plain_blas, other])
    assert [library.name for library in libraries] == ["reference", "reference-2"]


def test_what_is_no_blas_is_refused_with_its_reason(tmp_path: Path) -> None:
    text = tmp_path / "libblas.so.3"
    text.write_text("no library")
    maths = ctypes.util.find_library("m")
    assert maths is not None
    libraries, refused = probe([text, maths])
    assert libraries == []
    assert "libblas.so.3" in refused[str(text)]
    assert refused[maths] == "it has no function cblas_dgemv"
    assert describe(maths) == {"refused": "it has no function cblas_dgemv"}


def test_a_library_that_crashes_when_opened_costs_no_other(
    plain_blas: Path, tmp_path: Path
) -> None:
    code = "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n"
    crash = tmp_path / "libopenblas-crash.so"
    argv = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(crash)]
    subprocess.run(argv, input=code, text=True, check=True)
    libraries, refused = probe([crash, plain_blas])
    assert [library.name for library in libraries] == ["reference"]
    assert "status -6" in refused[str(crash)]


def test_a_library_that_takes_for_ever_is_given_up(
    plain_blas: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blas, "_PROBE_S", 0.2)
    monkeypatch.setattr(sys, "executable", shutil.which("sleep"))
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda argv, **options: popen([argv[0], "30"], **options)
    )
    libraries, refused = probe([plain_blas])
    assert libraries == []
    assert "more than 0.2 s" in refused[str(plain_blas)]


# --- choosing ------------------------------------------------------------------------------------


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three libraries, wherever the tests run; paths that are named are refused."""
    found = [
        Blas(name, name.partition("-")[0], f"somewhere/{name}.so", "cblas_dgemv", "")
        for name in ("openblas-numpy", "blis", "reference")
    ]
    refused = "it has no function cblas_dgemv"
    monkeypatch.setattr(
        blas, "blas_libraries", lambda more, _: (found, dict.fromkeys(more, refused))
    )
    return [library.name for library in found]


def test_all_or_some_by_name(three: list[str]) -> None:
    assert [library.name for library in chosen(["all"])] == three
    assert [library.name for library in chosen(["reference", "blis", "reference"])] == [
        "reference", "blis",
    ]  # fmt: skip


@pytest.mark.usefixtures("three")
def test_a_wrong_name_or_path_is_refused() -> None:
    with pytest.raises(UserError, match="unknown BLAS library 'openblas': did you mean"):
        chosen(["openblas"])
    with pytest.raises(UserError, match=r"a/libm\.so cannot be used: it has no function"):
        chosen(["a/libm.so"])


def test_no_blas_at_all_says_how_to_install_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "candidates", list)
    with pytest.raises(UserError, match=r"no BLAS library is found here.*apt-get install libopen"):
        chosen(["all"])


def test_a_path_is_used(plain_blas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "candidates", list)
    (library,) = chosen([str(plain_blas)])
    assert library.path == str(plain_blas)
    assert blas_libraries([str(plain_blas)])[0] == [library]
