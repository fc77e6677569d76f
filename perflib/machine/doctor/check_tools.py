"""The doctor's check of programs that some notebooks use where they are installed."""

from __future__ import annotations

import ctypes.util
import shutil
from collections.abc import Callable
from pathlib import Path

from perflib.machine.doctor.checkup import Check

__all__ = ["check_tools"]

# program or library, Debian's package, what it is for
_PROGRAMS = (
    ("perf", "linux-perf", "profiles (notebook 02)"),
    ("objdump", "binutils", "instructions of functions (02, 04, 05)"),
    ("qemu-x86_64", "qemu-user", "simulated iTLB misses and 4K aliases (03, 05, 09, 10)"),
)
_LIBRARIES = (("pfm", "libpfm4", "names of hardware events (03)"),)


def check_tools(
    root: Path = Path("/"),
    which: Callable[[str], str | None] = shutil.which,
    library: Callable[[str], str | None] = ctypes.util.find_library,
) -> list[Check]:
    """One check: which of the optional programs and libraries are not here."""
    cost = "Costs no time, but what needs them is left out, and says so."
    if root != Path("/"):
        return [Check("tools", "unknown", "not this machine", cost, "")]
    absent = [entry for entry in _PROGRAMS if which(entry[0]) is None]
    absent += [entry for entry in _LIBRARIES if library(entry[0]) is None]
    if not absent:
        names = ", ".join(entry[1] for entry in (*_PROGRAMS, *_LIBRARIES))
        return [Check("tools", "good", f"all there: {names}", cost, "")]
    missing = "; ".join(f"no {package}: {purpose}" for _, package, purpose in absent)
    packages = " ".join(package for _, package, _ in absent)
    return [Check("tools", "warn", missing, cost, f"apt-get install {packages}")]
