"""What the root of an arm64 guest is made of, without building one: ``make test-arm`` does that."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.arm import root
from tests.arm.boot import command_line
from tests.arm.root import LOCK, PYTHON, build, locked, needed, processor
from tests.numa.guest import pytest_inside
from tests.numa.kernel import Kernel, MissingError

HERE = Path(__file__).parent
A_LOCK = """one==1 ; python_version < '3.12' \\
    --hash=sha256:a
one==2 ; python_version >= '3.12' \\
    --hash=sha256:b \\
    --hash=sha256:c
two-three==4 \\
    --hash=sha256:d
"""


def test_an_ordinary_run_boots_nothing() -> None:
    for file in [HERE / "boot.py", *(HERE / "inside").glob("*.py")]:
        assert not fnmatch.fnmatch(file.name, "test_*.py")


def test_the_tests_inside_refuse_any_other_machine() -> None:
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--confcutdir"]
    inside = HERE / "inside"
    answer = subprocess.run(
        [*argv, str(inside), str(inside / "counts.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parents[1],
    )
    assert answer.returncode == pytest.ExitCode.TESTS_FAILED
    assert "passed" not in answer.stdout.splitlines()[-1]
    assert "they run only in a guest that 'make test-arm' boots" in answer.stdout


def test_what_is_needed_is_followed_without_extras() -> None:
    needs = {
        "perflib-jupyter": ["Two_Three>=1", "lab; extra == 'lab'"],
        "two-three": ["one", "never; python_version < '3'"],
    }
    assert needed(PYTHON[:1], needs.get) == {"one", "two-three"}


def test_a_part_of_the_lock_keeps_versions_and_hashes() -> None:
    assert locked(A_LOCK, {"one"}) == A_LOCK[: A_LOCK.index("two-three")]
    with pytest.raises(MissingError, match=r"locked-dev.txt lacks four: make lock"):
        locked(A_LOCK, {"one", "four"})


def test_our_own_lock_has_all_that_the_guest_needs() -> None:
    names = needed(PYTHON)
    assert {"cffi", "numpy", "pytest"} <= names
    assert "matplotlib" not in names
    found = locked(LOCK.read_text(), names)
    assert all(f"\n{name}==" in f"\n{found}" for name in names)


def test_a_machine_without_apt_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(MissingError, match="no 'apt-get' to unpack"):
        build(tmp_path)


def test_a_registry_that_does_not_answer_is_named_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(argv: list[str], _: Path | None) -> str:
        raise MissingError(" ".join(argv[-1:]))

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(root, "run_apt", refuse)
    with pytest.raises(MissingError, match="update"):
        build(tmp_path)
    assert list(tmp_path.glob("root-*")) == list(tmp_path.glob(".building-*")) == []


def test_the_guest_reads_its_root_and_the_checkout_and_writes_its_answers(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path / "image", ())
    words = command_line(processor(tmp_path), kernel, tmp_path / "first", tmp_path, tmp_path)
    shares = [word for word in words if word.startswith("local,")]
    assert [word.split(",")[1] for word in shares] == ["id=root", "id=checkout", "id=out"]
    assert [",readonly=on" in word for word in shares] == [True, True, False]
    argv, _ = pytest_inside("python3", HERE / "inside", Path("/mnt"))
    assert "/mnt/tests/arm/inside/counts.py" in argv
