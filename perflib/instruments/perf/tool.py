"""The perf program: where it is, what to install where it is not, and why it was refused."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Literal

from perflib.machine.files import assignments, fields, integer
from perflib.machine.processes import is_gone, may_count_kernel
from perflib.model.errors import MeasurementError

CallGraph = Literal["none", "fp", "dwarf", "lbr"]  # how perf finds the callers

_INSTALL = {
    "debian": "apt-get install linux-perf",
    "ubuntu": "apt-get install linux-tools-common linux-tools-$(uname -r)",
    "fedora": "dnf install perf",
    "rhel": "dnf install perf",
    "suse": "zypper install perf",
    "arch": "pacman -S perf",
    "alpine": "apk add perf",
    "gentoo": "emerge dev-util/perf",
}
_REFUSED = re.compile(r"[Pp]ermission|not permitted|perf_event_paranoid|Access to performance")
_TOO_OLD = re.compile(r"unknown option [`'\"]?control|control-fifo|Cannot parse.*control")
_LINES = 12


class PerfUnavailableError(MeasurementError):
    """There is no perf here, it is too old, or it is not allowed: counters may still work."""


class ProcessGoneError(MeasurementError):
    """The process that was recorded, or was to be, has ended."""


def find_perf(root: Path = Path("/")) -> Path:
    """The perf program on PATH.

    Raises
    ------
    PerfUnavailableError
        There is none; the message has this distribution's line to install it.
    """
    found = shutil.which("perf")
    if found is None:
        msg = f"perf is not installed (or not on PATH). {_install(root)}"
        raise PerfUnavailableError(msg)
    return Path(found)


def kernel_allowed(perf: Path | None = None, root: Path = Path("/")) -> bool:
    """Whether kernel code may be sampled: as root, with CAP_PERFMON, or where paranoid is below 2.

    ``perf``: the program, which may have capabilities of its own (``setcap``).
    """
    if may_count_kernel(root):
        return True
    try:
        if perf is not None and os.getxattr(perf, "security.capability"):
            return True
    except OSError:  # it has none, or the file system knows of none
        pass
    paranoid = integer(root / "proc/sys/kernel/perf_event_paranoid")
    return paranoid is not None and paranoid <= 1


def explain(errors: str, perf: Path, pid: int | None, root: Path = Path("/")) -> MeasurementError:
    """The error for what perf reported when it did not start, or ended on its own.

    Parameters
    ----------
    errors
        Its standard error.
    perf, pid
        The program, and the process it was to record; None: the whole machine.
    root
        Where /proc and /etc are.
    """
    lines = [line.rstrip() for line in errors.splitlines() if line.strip()]
    last = "\n".join(f"  {line}" for line in lines[-_LINES:]) or "  (nothing)"
    if _TOO_OLD.search(errors):
        msg = (
            f"{perf} is too old: it has no --control, which came with perf 5.10. {_install(root)}"
            f"\nperf reports:\n{last}"
        )
        return PerfUnavailableError(msg)
    if "perf not found for kernel" in errors:  # Ubuntu's wrapper without the program behind it
        return PerfUnavailableError(f"{perf} lacks this kernel's own part. {_install(root)}")
    if "No space left on device" in errors or "File too large" in errors:
        msg = f"perf could not write its data: the disk is full. perf reports:\n{last}"
        return MeasurementError(msg)
    if pid is None:
        if _REFUSED.search(errors):
            return PerfUnavailableError(f"{refusal(perf, None, root)} perf reports:\n{last}")
        return MeasurementError(f"perf could not record this machine. It reports:\n{last}")
    if _owner(pid, root) is None:
        msg = f"process {pid} is gone: there is nothing to record. perf reports:\n{last}"
        return ProcessGoneError(msg)
    if _REFUSED.search(errors):
        return PerfUnavailableError(f"{refusal(perf, pid, root)} perf reports:\n{last}")
    return MeasurementError(f"perf could not record process {pid}. It reports:\n{last}")


def refusal(perf: Path, pid: int | None, root: Path = Path("/")) -> str:
    """Why perf may not record a process (None: the whole machine), and what allows it."""
    allow = f"setcap cap_perfmon,cap_sys_ptrace+ep {shlex.quote(str(perf.resolve()))}"
    owner = os.geteuid() if pid is None else _owner(pid, root)
    if owner != os.geteuid() and os.geteuid() != 0:
        return (
            f"perf may not record process {pid}: it belongs to user {owner}, this is user "
            f"{os.geteuid()}. Record as that user or as root, or let perf do so: {allow}."
        )
    paranoid = integer(root / "proc/sys/kernel/perf_event_paranoid")
    if os.geteuid() == 0 or paranoid is None:
        return (
            "perf is not allowed here although kernel.perf_event_paranoid is "
            f"{'not there' if paranoid is None else paranoid}: a container's seccomp filter or a "
            "security module forbids perf_event_open ('--cap-add PERFMON', or "
            "'--security-opt seccomp=unconfined', allow it)."
        )
    level = "-1" if pid is None else "2 (-1 to see the kernel too)"
    return (
        f"perf is not allowed: kernel.perf_event_paranoid is {paranoid}. As root: sysctl "
        f"kernel.perf_event_paranoid={level}, or give perf CAP_PERFMON: "
        f"{allow}."
    )


def _owner(pid: int, root: Path) -> int | None:
    """The user a process runs as; None where it is gone, or has ended and waits for its parent."""
    uids = fields(root / f"proc/{pid}/status").get("Uid", "").split()
    return int(uids[1]) if uids and not is_gone(pid, root) else None


def _install(root: Path) -> str:
    release = assignments(root / "etc/os-release")
    for family in [release.get("ID", ""), *release.get("ID_LIKE", "").split()]:
        if family.split("-")[0] in _INSTALL:
            return f"Install it, as root: {_INSTALL[family.split('-')[0]]}"
    return "Install your distribution's package, as root; its name is perf or linux-perf."
