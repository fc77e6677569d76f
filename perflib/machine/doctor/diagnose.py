"""What spoils measurements on this machine: its state now, the cost, and the command for it.

Nothing is changed here. A check's state is ``good``, ``warn`` (a measurement suffers, or may) or
``unknown`` (cannot be seen from here, like much in a virtual machine).
"""

from __future__ import annotations

import time
from pathlib import Path

from perflib.machine.activity import activity
from perflib.machine.doctor.check_settings import check_settings
from perflib.machine.doctor.check_sharing import check_sharing
from perflib.machine.doctor.check_speed import check_speed
from perflib.machine.doctor.check_surroundings import check_surroundings
from perflib.machine.doctor.check_tools import check_cache, check_tools
from perflib.machine.doctor.checkup import Check, State, examine
from perflib.machine.doctor.permissions import check_permissions
from perflib.machine.hardware.cpuid import Leaves, leaves_or_reason

__all__ = ["Check", "State", "diagnose"]


def diagnose(
    root: Path = Path("/"),
    *,
    leaves: Leaves | None = None,
    interval_s: float = 0.5,
    probe_s: float | None = None,
) -> list[Check]:
    """Check everything that is known to spoil measurements.

    Parameters
    ----------
    root
        Where /proc and /sys are found; another machine's recorded files serve as well.
    leaves
        The processor's CPUID leaves; read if this is the machine itself.
    interval_s
        How long to watch what runs and what is stolen, besides the sums since the start.
    probe_s
        How long to probe the cores of this machine, in all; ``None``: 1.5 to 3 s, by their number.
    """
    if leaves is None:
        leaves = leaves_or_reason()[0] if root == Path("/") else {}
    patient = examine(root, leaves)
    before = activity.cpu_times(root)
    time.sleep(interval_s)
    total = activity.cpu_times(root)
    recent = {cpu: total[cpu] - before[cpu] for cpu in total.keys() & before.keys()}
    return [
        *check_settings(patient),
        *check_speed(patient),
        *check_surroundings(patient, total, recent),
        check_permissions(patient),
        check_sharing(patient, probe_s),
        check_cache(root),
        *check_tools(root),
    ]
