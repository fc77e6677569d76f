"""Optional programs: named when they are absent, with what they are for."""

from __future__ import annotations

from pathlib import Path

from perflib.machine.doctor.check_tools import check_tools


def test_nothing_absent_is_good() -> None:
    (check,) = check_tools(which=lambda name: f"bin/{name}", library=lambda name: f"lib{name}.so")
    assert (check.name, check.state, check.command) == ("tools", "good", "")
    assert "linux-perf" in check.now


def test_what_is_absent_is_named_with_its_package_and_purpose() -> None:
    (check,) = check_tools(
        which=lambda name: None if name == "perf" else f"bin/{name}", library=lambda _: None
    )
    assert check.state == "warn"
    assert check.now.startswith("no linux-perf: profiles")
    assert "qemu-user" not in check.now
    assert check.command == "apt-get install linux-perf libpfm4"


def test_another_machines_programs_are_unknown() -> None:
    (check,) = check_tools(Path("/recorded"))
    assert check.state == "unknown"
