"""What else runs here: the share of each CPU's time that was busy or stolen, from /proc/stat."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

from perflib.machine.files import text, whole


@dataclass(frozen=True)
class CpuTime:
    """Ticks (10 ms as a rule) since the start of the machine, or between two readings."""

    busy: int
    idle: int
    steal: int
    softirq: int = 0  # of those that were busy

    @property
    def total(self) -> int:
        """All ticks."""
        return self.busy + self.idle + self.steal

    @property
    def busy_share(self) -> float:
        """Share of the time in which something ran here; 0 where no time has passed."""
        return self.busy / self.total if self.total else 0.0

    @property
    def steal_share(self) -> float:
        """Of the time in which the CPU was wanted here, the share that the hypervisor kept back."""
        wanted = self.busy + self.steal
        return self.steal / wanted if wanted else 0.0

    def __add__(self, other: CpuTime) -> CpuTime:
        """Both together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return CpuTime(*(mine + more for mine, more in pairs))

    def __sub__(self, earlier: CpuTime) -> CpuTime:
        """What passed since an earlier reading (the kernel's counts may step back a little)."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return CpuTime(*(max(0, now - before) for now, before in pairs))


def cpu_times(root: Path = Path("/")) -> dict[int, CpuTime]:
    """Each running CPU's time since the start of the machine; empty where there is no /proc."""
    found = {}
    for line in (text(root / "proc/stat") or "").splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and len(words) >= 4:
            # user nice system idle iowait irq softirq steal; guest time is part of user
            user, nice, system, idle, *rest = (whole(word) or 0 for word in words)
            waiting, irq, softirq, steal = [*rest, 0, 0, 0, 0][:4]
            busy = user + nice + system + irq + softirq
            found[int(name[3:])] = CpuTime(busy, idle + waiting, steal, softirq)
    return found


def load_average(root: Path = Path("/")) -> float | None:
    """Tasks that ran or wanted to, mean over about a minute (of the host, in a container)."""
    try:
        return float((text(root / "proc/loadavg") or "").split()[0])
    except (IndexError, ValueError):
        return None
