"""How the tests themselves run: they end, and say what would bring those that were skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skips import install_lines

TOP = Path(__file__).parents[1]
FOREVER = """
import threading
import tests.conftest
tests.conftest.END_S = 1.0
def test_that_fails_and_leaves_a_thread_that_waits():
    threading.Thread(target=threading.Event().wait, name="left behind").start()
    assert False
"""
SKIPPED = """
import pytest
@pytest.mark.parametrize("number", range(11))
def test_that_needs_something(number):
    pytest.skip("no perf on PATH: apt-get install linux-perf")
"""


def run(code: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run tests under this repository's settings, as ``make test`` does."""
    (folder / "test_made.py").write_text(code)
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(TOP / "pyproject.toml"),
        "-p",
        "tests.conftest",
    ]
    argv += ["-p", "no:cacheprovider", f"--basetemp={folder / 'base'}", *more]
    argv += [str(folder / "test_made.py")]
    environment = {name: value for name, value in os.environ.items() if "XDIST" not in name}
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=TOP, env=environment, timeout=120
    )


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_thread_that_a_failed_test_leaves_does_not_hold_the_end(
    processes: str, tmp_path: Path
) -> None:
    done = run(FOREVER, tmp_path, "-n", processes)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "1 failed" in done.stdout.splitlines()[-1]
    if processes == "0":  # else xdist ends the process, whatever it waits for
        assert "Timeout" in done.stderr


def test_a_long_table_of_skips_ends_with_a_line_of_packages(tmp_path: Path) -> None:
    *_, line, last = run(SKIPPED, tmp_path).stdout.splitlines()
    assert line == "Packages would bring skipped tests: apt-get install linux-perf (11)"
    assert "11 skipped" in last


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        (
            ["pip install 'perflib-jupyter[dev]'", "x: apt-get install a b-2, or dnf install c"],
            "pip install 'perflib-jupyter[dev]' (1); apt-get install a b-2 (1)",
        ),
        (
            ["'apt-get install b' (Debian)", "apt-get install c.", "apt-get install b", "no d"],
            "apt-get install b (2), c (1)",
        ),
        (["no x: apt-get install y z-$(uname -r)"], "apt-get install y z-$(uname -r) (1)"),
    ],
)
def test_packages_are_counted(reasons: list[str], lines: str) -> None:
    assert install_lines(reasons) == f"Packages would bring skipped tests: {lines}"


def test_no_package_would_bring_what_this_machine_lacks() -> None:
    assert install_lines(["two cores are needed", "perf is not allowed"]) == ""
