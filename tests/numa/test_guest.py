"""The machinery of the guests, without booting one: ``make test-numa`` does that."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from pathlib import Path

import pytest

from tests.numa.guest import Guest, GuestError, read_answer

HERE = Path(__file__).parent
FOLDERS = {"numa": HERE, "arm": HERE.parent / "arm"}


# --- what is collected, and where it may run -----------------------------------------------------


def test_an_ordinary_run_boots_nothing() -> None:
    for folder in FOLDERS.values():
        for file in [folder / "boot.py", *(folder / "inside").glob("*.py")]:
            assert not fnmatch.fnmatch(file.name, "test_*.py")
            assert not fnmatch.fnmatch(file.name, "*_test.py")


@pytest.mark.parametrize(("target", "file"), [("numa", "machine.py"), ("arm", "counts.py")])
def test_the_tests_inside_refuse_any_other_machine(target: str, file: str) -> None:
    inside = FOLDERS[target] / "inside"
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--confcutdir", str(inside)]
    answer = subprocess.run(
        [*argv, str(inside / file)],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parents[1],
    )
    last = answer.stdout.splitlines()[-1]
    assert answer.returncode == pytest.ExitCode.TESTS_FAILED
    assert "error" in last
    assert not any(word in last for word in ("passed", "failed"))
    assert f"they run only in a guest that 'make test-{target}' boots" in answer.stdout


# --- what it answers -----------------------------------------------------------------------------


def test_a_guest_that_panics_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="nothing at all: the kernel has not started"):
        read_answer(tmp_path)
    (tmp_path / "console").write_text("\n".join([*"abc" * 40, "Kernel panic - not syncing\r\n"]))
    with pytest.raises(GuestError, match="ended before its tests did") as caught:
        read_answer(tmp_path)
    assert str(caught.value).endswith("Kernel panic - not syncing")
    assert len(str(caught.value).splitlines()) < 50


def test_a_guest_that_hangs_is_ended(tmp_path: Path) -> None:
    with Guest(["sleep", "600"], tmp_path) as hanging:
        process = hanging._process
        with pytest.raises(GuestError, match=r"has not ended within 0\.1 s"):
            hanging.answer(0.1)
    assert process.returncode is not None
