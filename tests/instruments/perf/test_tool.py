"""Which perf there is, and what its refusals mean."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from perflib.instruments.perf.tool import (
    PerfUnavailableError,
    ProcessGoneError,
    explain,
    find_perf,
    kernel_allowed,
)
from perflib.model.errors import MeasurementError
from tests.machine import trees

PERF = Path("/usr/bin/perf")
NOT_ALLOWED = """\
Error:
Access to performance monitoring and observability operations is limited.
Consider adjusting /proc/sys/kernel/perf_event_paranoid setting to open
access to performance monitoring and observability operations for processes
without CAP_PERFMON, CAP_SYS_PTRACE or CAP_SYS_ADMIN Linux capability.
"""


def machine(
    root: Path, *, paranoid: int | None, owner: int | None = None, state: str = "R"
) -> Path:
    files = {"etc/os-release": "ID=debian\n"}
    if paranoid is not None:
        files["proc/sys/kernel/perf_event_paranoid"] = str(paranoid)
    if owner is not None:
        files["proc/77/status"] = f"Name: job\nState: {state} (x)\nUid: {owner} {owner} {owner} 0\n"
    return trees.write(root, files)


@pytest.mark.parametrize(
    ("release", "line"),
    [
        ("ID=debian\n", "apt-get install linux-perf"),
        ("NAME=Ubuntu\nID=ubuntu\nID_LIKE=debian\n", "linux-tools-$(uname -r)"),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"\n', "dnf install perf"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\n', "zypper install perf"),
        ("ID=arch\n", "pacman -S perf"),
        ("ID=plan9\n", "your distribution's package"),
        ("", "your distribution's package"),
    ],
)
def test_absent_perf_comes_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, line: str
) -> None:
    trees.write(tmp_path, {"etc/os-release": release})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PerfUnavailableError, match="perf is not installed") as caught:
        find_perf(tmp_path)
    assert line in str(caught.value)


@pytest.mark.parametrize("paranoid", [2, 4])
def test_refusal_names_the_setting_and_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paranoid: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    error = explain(NOT_ALLOWED, PERF, 77, machine(tmp_path, paranoid=paranoid, owner=1000))
    assert isinstance(error, PerfUnavailableError)
    text = str(error)
    assert f"kernel.perf_event_paranoid is {paranoid}." in text
    assert "sysctl kernel.perf_event_paranoid=2" in text
    assert "CAP_PERFMON" in text
    assert "Access to performance monitoring" in text


def test_refusal_of_another_users_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    error = explain(NOT_ALLOWED, PERF, 77, machine(tmp_path, paranoid=1, owner=33))
    assert "belongs to user 33, this is user 1000" in str(error)


@pytest.mark.parametrize("state", ["Z", "X", None])
def test_process_that_has_ended(tmp_path: Path, state: str | None) -> None:
    root = machine(tmp_path, paranoid=2, owner=None if state is None else 0, state=state or "R")
    error = explain("Couldn't create thread/CPU maps: No such process", PERF, 77, root)
    assert isinstance(error, ProcessGoneError)
    assert "process 77 is gone" in str(error)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (
            " Error: unknown option `control'\n",
            PerfUnavailableError,
            "too old: it has no --control",
        ),
        ("WARNING: perf not found for kernel 6.8.0-1\n", PerfUnavailableError, "own part. Install"),
        (
            "failed to write perf data, error: No space left on device\n",
            MeasurementError,
            "the disk is full",
        ),
        ("event syntax error: 'cycels'\n", MeasurementError, "It reports:\n  event syntax error"),
        ("", MeasurementError, "(nothing)"),
        ("x\n" * 50, MeasurementError, "x\n  x"),
    ],
)
def test_other_failures(
    tmp_path: Path, said: str, kind: type[MeasurementError], words: str
) -> None:
    error = explain(said, PERF, 77, machine(tmp_path, paranoid=2, owner=os.geteuid()))
    assert type(error) is kind
    assert words in str(error)
    assert len(str(error).splitlines()) < 16


@pytest.mark.parametrize(
    ("capabilities", "paranoid", "allowed"),
    [
        ("0000000000000000", 2, False),
        ("0000000000000000", 4, False),
        ("0000000000000000", 1, True),
        ("0000000000000000", -1, True),
        ("0000004000000000", 4, True),  # CAP_PERFMON
        ("0000000000200000", 4, True),  # CAP_SYS_ADMIN
        ("0000000000000000", None, False),
    ],
)
def test_who_may_see_the_kernel(
    tmp_path: Path, capabilities: str, paranoid: int | None, allowed: bool
) -> None:
    root = machine(tmp_path, paranoid=paranoid)
    trees.write(root, {"proc/self/status": f"CapEff: {capabilities}\n"})
    assert kernel_allowed(root=root) is allowed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file capabilities")
def test_perf_with_capabilities_of_its_own_may_see_the_kernel(tmp_path: Path) -> None:
    root = machine(tmp_path, paranoid=4)
    perf = tmp_path / "perf"
    perf.write_bytes(b"")
    assert not kernel_allowed(perf, root)
    done = subprocess.run(["setcap", "cap_perfmon+ep", str(perf)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this file system knows of no capabilities")
    assert kernel_allowed(perf, root)
