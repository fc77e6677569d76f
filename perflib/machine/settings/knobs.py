"""The switches of a machine that change what a measurement sees: one table, read by all.

The doctor shows what each is and what it costs; ``measure.conditions`` sets those that the user
names and puts them back. Nothing here writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from perflib.machine.settings.guard import read_setting
from perflib.model.errors import UserError, choose

__all__ = ["KNOBS", "Knob", "knob"]

_CPU = "sys/devices/system/cpu"
_THP = "sys/kernel/mm/transparent_hugepage"


@dataclass(frozen=True)
class Knob:
    """One switch: where it is, what it may be, and what it does to a measurement.

    Parameters
    ----------
    name
        What the user calls it (``governor``).
    patterns
        Where it may be, as globs below the root. The first that names an existing file is the
        one; it may name several files (a governor for each frequency domain).
    help
        What the switch does.
    cost
        What it does to a measurement, and why.
    values
        What it may be set to; ``None``: an integer from ``minimum`` up.
    inverted
        The patterns of files that say the opposite (``no_turbo``).
    """

    name: str
    patterns: tuple[str, ...]
    help: str
    cost: str
    values: tuple[str, ...] | None
    minimum: int = 0
    on_off: bool = False
    inverted: tuple[str, ...] = ()

    def paths(self, root: Path = Path("/")) -> list[Path]:
        """The switch's files that exist on this machine; empty where it has no such switch."""
        for pattern in self.patterns:
            found = sorted(path for path in root.glob(pattern) if path.is_file())
            if found:
                return found
        return []

    def read(self, root: Path = Path("/")) -> str | None:
        """Its value now, as a user says it; ``None`` where there is no such switch.

        Where its files disagree: ``mixed (performance, powersave)``.
        """
        found = {self.decode(self.current(path), path) for path in self.paths(root)}
        readable = sorted(value for value in found if value)
        if len(readable) > 1:
            return f"mixed ({', '.join(readable)})"
        return readable[0] if readable else None

    def current(self, path: Path) -> str:
        """What must be written into ``path`` to put the switch back to what it is now.

        Empty where the file cannot be read.
        """
        try:
            return read_setting(str(path))
        except OSError:
            return ""

    def encode(self, value: str, path: Path) -> str:
        """What to write into ``path`` (one of ``paths()``) for a value as a user says it.

        Raises
        ------
        UserError
            The switch has no such value.
        """
        value = self.check(value)
        if not self.on_off:
            return value
        return str(int((value == "on") != self._inverts(path)))

    def decode(self, text: str, path: Path) -> str:
        """What the text of ``path`` (see ``current``) means, as a user says it."""
        if self.on_off and text in ("0", "1"):
            return "on" if (text == "1") != self._inverts(path) else "off"
        return text

    def check(self, value: str) -> str:
        """``value`` if the switch may have it.

        Raises
        ------
        UserError
            It may not; the message names what it may be.
        """
        value = str(value).strip()
        if self.values is not None:
            if value not in self.values:
                raise UserError(choose(f"value of {self.name}", value, self.values))
        elif not re.fullmatch(r"-?\d+", value) or int(value) < self.minimum:
            msg = f"{self.name}={value!r}: it takes an integer from {self.minimum} up"
            raise UserError(msg)
        return value

    def command(self, value: str, root: Path = Path("/")) -> str:
        """The shell command that sets it, for the files that this machine has."""
        found = self.paths(root)
        pattern = next(
            (p for p in self.patterns if found and found[0] in root.glob(p)), self.patterns[0]
        )
        if pattern.startswith("proc/sys/"):
            name = pattern.removeprefix("proc/sys/").replace("/", ".")
            return f"sudo sysctl -w {name}={self.check(value)}"
        return f"echo {self.encode(value, root / pattern)} | sudo tee /{pattern}"

    def _inverts(self, path: Path) -> bool:
        return any(path.match(pattern) for pattern in self.inverted)


_TABLE = (
    Knob(
        "governor",
        (f"{_CPU}/cpufreq/policy*/scaling_governor", f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor"),
        "Chooses the core's frequency.",
        "A governor other than 'performance' raises the clock only after it has seen load: the "
        "first milliseconds of a sample run at a lower frequency (often less than half), and a "
        "sample that sleeps or waits for memory is slowed again.",
        ("performance", "powersave", "schedutil", "ondemand", "conservative", "userspace"),
    ),
    Knob(
        "turbo",
        (
            f"{_CPU}/intel_pstate/no_turbo",
            f"{_CPU}/cpufreq/boost",
            f"{_CPU}/cpufreq/policy*/boost",
        ),
        "Lets a core run above its nominal frequency while power and temperature allow it.",
        "With turbo the frequency depends on how many cores are busy, how warm they are and which "
        "vector instructions they run: the same work takes 10 to 40 % less time on an idle "
        "machine, and a core's speed becomes its neighbours' business.",
        ("on", "off"),
        on_off=True,
        inverted=("intel_pstate/no_turbo",),
    ),
    Knob(
        "smt",
        (f"{_CPU}/smt/control",),
        "Runs two hardware threads on one core.",
        "Siblings share the core's execution units, L1 and L2 caches and TLBs: what runs on one "
        "takes 20 to 50 % of the other's speed, and halves the cache and TLB that it finds.",
        ("on", "off"),
    ),
    Knob(
        "thp",
        (f"{_THP}/enabled",),
        "Backs large anonymous memory with 2 MiB pages.",
        "With 'always' a buffer is on huge pages or not as memory happens to be fragmented, so the "
        "same program misses the TLB in one run and not in the next; 'madvise' leaves it to the "
        "program, which is what a measurement wants.",
        ("always", "madvise", "never"),
    ),
    Knob(
        "thp_defrag",
        (f"{_THP}/defrag",),
        "Whether a page fault may stop to compact memory for a huge page.",
        "With 'always' a first touch can stall for milliseconds while the kernel moves pages; with "
        "'defer' a kernel thread does it later, at the cost of whoever runs then.",
        ("always", "defer", "defer+madvise", "madvise", "never"),
    ),
    Knob(
        "aslr",
        ("proc/sys/kernel/randomize_va_space",),
        "Puts stack, heap and libraries at random addresses in each process.",
        "Every process has other addresses, so conflicts between them (4 KiB aliasing, cache sets, "
        "branch predictor entries) come and go from run to run: a spread between processes that no "
        "number of samples within one process shows.",
        ("0", "1", "2"),
    ),
    Knob(
        "perf_event_paranoid",
        ("proc/sys/kernel/perf_event_paranoid",),
        "What a user without privileges may count with perf.",
        "Costs no time, but sight: above 2 nothing can be counted, at 2 only a process's own user "
        "code, at 1 its kernel part too, at 0 and below whole CPUs.",
        None,
        minimum=-1,
    ),
    Knob(
        "nmi_watchdog",
        ("proc/sys/kernel/nmi_watchdog",),
        "Looks for locked-up CPUs with a hardware counter.",
        "Holds one of each core's few hardware counters, so that perf multiplexes earlier or a "
        "group does not fit, and interrupts each core every few seconds.",
        ("0", "1"),
    ),
    Knob(
        "nr_hugepages",
        ("proc/sys/vm/nr_hugepages",),
        "Huge pages set aside for programs that ask for them by name.",
        "Costs no time. Without reserved pages an experiment that wants huge pages depends on "
        "memory not being fragmented.",
        None,
    ),
    Knob(
        "nr_hugepages_1g",
        ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",),
        "Pages of 1 GiB set aside for programs that ask for them by name.",
        "Costs no time. After a while the kernel finds no 1 GiB of memory in one piece.",
        None,
    ),
    Knob(
        "numa_balancing",
        ("proc/sys/kernel/numa_balancing",),
        "Unmaps pages to see who uses them, and moves them to that node.",
        "Takes page faults on memory that is in use and moves it during the run: latency changes "
        "in the middle of a measurement, and a placement that was verified does not last.",
        ("0", "1", "2"),
    ),
    Knob(
        "sched_rt_runtime_us",
        ("proc/sys/kernel/sched_rt_runtime_us",),
        "How much of each second real-time tasks may run; -1: all of it.",
        "At the usual 950000 a worker with FIFO priority that spins for a whole second is stopped "
        "for 50 ms of it: one long gap per second, 5 % of its time.",
        None,
        minimum=-1,
    ),
)

KNOBS: dict[str, Knob] = {entry.name: entry for entry in _TABLE}


def knob(name: str) -> Knob:
    """The switch of that name.

    Raises
    ------
    UserError
        There is none; the message names the nearest.
    """
    if name not in KNOBS:
        raise UserError(choose("system setting", name, KNOBS))
    return KNOBS[name]
