"""The doctor's checks of optional programs, and of the folder where kernels are compiled."""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from perflib.kernels.private import check_owner, check_runnable
from perflib.machine.doctor.checkup import Check
from perflib.model.errors import UserError
from perflib.store.paths import cache_dir

# program or library, Debian's package, what it is for
_PROGRAMS = (
    ("perf", "linux-perf", "profiles (notebook 02)"),
    ("objdump", "binutils", "instructions of functions (02, 04, 05)"),
    (
        f"qemu-{platform.machine()}",
        "qemu-user",
        "simulated iTLB misses and 4K aliases (03, 05, 09, 10)",
    ),
)
_LIBRARIES = (("pfm", "libpfm4", "names of hardware events (03)"),)
_LEAST_FREE_BYTES = 64 << 20


def check_cache(root: Path = Path("/")) -> Check:
    """One check: whether kernels can be compiled into the cache and run from it."""
    if root != Path("/"):
        return Check("kernel_cache", "unknown", "not this machine", "")
    folder = cache_dir().absolute()
    there = next(one for one in (folder, *folder.parents) if one.exists())
    problem = f"{there} has no space left"
    try:
        check_owner(folder)
        check_runnable(there)
        if not os.access(there, os.W_OK | os.X_OK):
            problem = f"{there} cannot be written"
        elif shutil.disk_usage(there).free >= _LEAST_FREE_BYTES:
            return Check("kernel_cache", "good", str(folder), "")
    except (UserError, OSError) as error:
        problem = str(error)
    return Check("kernel_cache", "warn", problem, "export PERFLIB_CACHE=FOLDER")


def check_tools(
    root: Path = Path("/"),
    which: Callable[[str], str | None] = shutil.which,
    library: Callable[[str], str | None] = ctypes.util.find_library,
) -> list[Check]:
    """One check: which of the optional programs and libraries are not here."""
    if root != Path("/"):
        return [Check("tools", "unknown", "not this machine", "")]
    absent = [entry for entry in _PROGRAMS if which(entry[0]) is None]
    absent += [entry for entry in _LIBRARIES if library(entry[0]) is None]
    if not absent:
        names = ", ".join(entry[1] for entry in (*_PROGRAMS, *_LIBRARIES))
        return [Check("tools", "good", f"all there: {names}", "")]
    missing = "; ".join(f"no {package}: {purpose}" for _, package, purpose in absent)
    packages = " ".join(package for _, package, _ in absent)
    return [Check("tools", "warn", missing, f"apt-get install {packages}")]
