"""The doctor's check of how much of each core one has, by probes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from perflib.machine.activity.sharing import CoreShare, core_shares
from perflib.machine.doctor.checkup import Check, Patient, State
from perflib.model.errors import PerflibError

_ALONE, _TAKEN, _STOLEN = 95.0, 5.0, 1.0  # percent
_MAX_NAMED = 8
_WHY = {
    "calibrated": "",
    "no probes": "no probe for this processor: cannot tell whether a sibling works",
    "few probes": "too few probes: cannot tell whether a sibling works",
    "no second state": "always in one state: cannot tell whether it is alone",
    "no first state": "never seen alone: cannot tell whether a sibling works",
}


def check_sharing(patient: Patient, probe_s: float | None = None) -> Check:
    """Probe the cores one may use for ``probe_s`` (``None``: 1.5 to 3 s) and say what they give."""
    if patient.root != Path("/"):
        return Check("sharing", "unknown", "not this machine", "")
    try:
        shares = core_shares(patient.topology.allowed_cpus(), probe_s)
    except PerflibError as error:
        return Check("sharing", "unknown", f"cannot tell: {error}", "")
    return judged(shares, virtual=patient.hypervisor is not None)


def judged(shares: Sequence[CoreShare], *, virtual: bool) -> Check:
    """What the shares of the cores say."""
    worst = sorted(shares, key=_lost, reverse=True)
    named = sorted(worst[:_MAX_NAMED], key=lambda share: share.cpu)
    now = "; ".join(_words(share) for share in named) or "no core could be probed"
    if len(worst) > _MAX_NAMED:
        now += f"; {len(worst) - _MAX_NAMED} more give as much or more"
    bad = [share for share in shares if _spoils(share)]
    state: State = "warn" if bad else "good"
    if not bad and not any(share.status == "calibrated" for share in shares):
        state = "unknown"
    return Check(
        "sharing", state, now, _command(bad, virtual=virtual),
        tuple(share.to_dict() for share in shares),
    )  # fmt: skip


def _words(share: CoreShare) -> str:
    parts = []
    if share.status == "calibrated":
        parts.append(f"alone {share.alone_percent:.0f} %")
        if math.isfinite(share.sibling_cost_percent):
            parts.append(f"a sibling costs {share.sibling_cost_percent:.0f} %")
    else:
        parts.append(_WHY[share.status])
    if share.taken_percent >= _STOLEN:
        parts.append(f"other tasks take {share.taken_percent:.0f} %")
    if share.stolen_percent >= _STOLEN:
        parts.append(f"the hypervisor takes {share.stolen_percent:.0f} %")
    return f"cpu{share.cpu}: {', '.join(parts)}"


def _lost(share: CoreShare) -> float:
    """How much of the core is lost, in percent, to sort by; what is unknown counts as none."""
    factors = (share.taken_percent, share.stolen_percent, 100 - share.alone_percent)
    return 100 - 100 * math.prod(
        1 - (part if math.isfinite(part) else 0.0) / 100 for part in factors
    )


def _spoils(share: CoreShare) -> bool:
    return (
        share.alone_percent < _ALONE
        or share.taken_percent > _TAKEN
        or share.stolen_percent > _STOLEN
    )


def _command(bad: Sequence[CoreShare], *, virtual: bool) -> str:
    if any(share.alone_percent < _ALONE or share.stolen_percent > _STOLEN for share in bad):
        if virtual:
            return "(on the host) virsh vcpupin GUEST VCPU CPU, or a dedicated instance"
        return "echo off | sudo tee /sys/devices/system/cpu/smt/control"
    return "ps -eo pid,psr,pcpu,comm --sort=-pcpu | head" if bad else ""
