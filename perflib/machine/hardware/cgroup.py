"""What the container around this process allows it: CPUs, CPU time, memory.

A limit may sit in any group between the process and the top, so every group upwards is read and
the narrowest limit wins. Both hierarchies are understood: version 2 (``cpu.max``) and version 1
(``cpu.cfs_quota_us``), also mixed, and a container that sees its own group as the top.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perflib.machine.cpulist import parse_cpus
from perflib.machine.files import integer, mounts, text

_NO_LIMIT_BYTES = 1 << 60  # version 1 says "no limit" by a number close to 2^63


@dataclass(frozen=True)
class Limits:
    """What the control groups allow; ``None``: no limit, or none that can be seen.

    ``quota_cpus`` is CPU time per time (1.5: one and a half CPUs), handed out each
    ``period_us``. ``throttled_periods`` of ``periods`` ended with the process stopped, since the
    group was made. ``quota_path`` is the file to write to lift the quota.
    """

    version: str | None
    cpus: tuple[int, ...] | None
    quota_cpus: float | None
    period_us: int | None
    quota_path: str | None
    periods: int | None
    throttled_periods: int | None
    memory_bytes: int | None


@dataclass(frozen=True)
class _Quota:
    cpus: float
    period_us: int
    path: Path
    stat: dict[str, int]


def limits(root: Path = Path("/")) -> Limits:
    """Read the limits of this process's control groups below ``root``."""
    groups = _groups(root)
    quota = min(_quotas(groups), key=lambda found: found.cpus, default=None)
    memory = [
        value
        for value in _first_integers(groups, "memory", ("memory.max", "memory.limit_in_bytes"))
        if value < _NO_LIMIT_BYTES
    ]
    versions = {("v2" if controller == "" else "v1") for controller in groups}
    return Limits(
        version="hybrid" if len(versions) > 1 else next(iter(versions), None),
        cpus=_cpuset(groups),
        quota_cpus=quota.cpus if quota else None,
        period_us=quota.period_us if quota else None,
        quota_path=f"/{quota.path.relative_to(root)}" if quota else None,
        periods=quota.stat.get("nr_periods") if quota else None,
        throttled_periods=quota.stat.get("nr_throttled") if quota else None,
        memory_bytes=min(memory, default=None),
    )


def _groups(root: Path) -> dict[str, list[Path]]:
    """For each controller (``""``: version 2) the process's group and those above it."""
    mounted = list(_mounts(root))
    found: dict[str, list[Path]] = {}
    for line in (text(root / "proc/self/cgroup") or "").split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        for controller in [""] if number == "0" else controllers.split(","):
            seen = [
                (_inside(root, PurePosixPath(group), top, base), base)
                for options, top, base in mounted
                if controller in options
            ]
            if seen:  # the mount that shows most of the groups above this process's
                found[controller] = _upwards(*max(seen, key=_shown))
    return found


def _mounts(root: Path) -> Iterator[tuple[set[str], PurePosixPath, Path]]:
    """Each mounted hierarchy: its controllers, the group that it shows as its top, and where."""
    at = {mount[4]: (mount[3], system) for mount, system in mounts(root)}  # a later one covers
    for point, (top, (kind, *_, options)) in at.items():
        if kind in ("cgroup", "cgroup2"):
            controllers = set(options.split(",")) if kind == "cgroup" else {""}
            yield controllers, PurePosixPath(top), root / point.lstrip("/")


def _inside(
    root: Path, group: PurePosixPath, top: PurePosixPath, base: Path
) -> tuple[str, ...] | None:
    """The steps from a mount's top down to the process's group; ``None``: it is not below."""
    if group.is_relative_to(top):
        steps = group.relative_to(top).parts
        return None if ".." in steps else steps
    above = top.parts[1:]
    if set(above) != {".."} or ".." in group.parts:
        return None
    # The top is that many groups above this process's namespace, whose names nobody says.
    process = (text(root / "proc/self/stat") or "").partition(" ")[0]
    for folder in base.glob("/".join("*" * len(above))):
        own = folder.joinpath(*group.parts[1:])
        if process in (text(own / "cgroup.procs") or "").split():
            return own.relative_to(base).parts
    return None


def _shown(seen: tuple[tuple[str, ...] | None, Path]) -> tuple[bool, int]:
    steps, base = seen
    return steps is not None and base.joinpath(*steps).is_dir(), len(steps or ())


def _upwards(steps: tuple[str, ...] | None, base: Path) -> list[Path]:
    """The process's group as seen through the mount, then each group above it."""
    # A group outside of what is mounted (a container without a cgroup namespace, ``/../..``)
    # is the mount's own top: the container sees nothing else.
    steps = steps or ()
    return [base.joinpath(*steps[:depth]) for depth in range(len(steps), -1, -1)]


def _quotas(groups: dict[str, list[Path]]) -> Iterator[_Quota]:
    for folder in groups.get("", []):
        quota, _, period = (text(folder / "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            yield _quota(int(quota), int(period), folder / "cpu.max")
    for folder in groups.get("cpu", []):
        quota_us = integer(folder / "cpu.cfs_quota_us")
        period_us = integer(folder / "cpu.cfs_period_us")
        if quota_us and quota_us > 0 and period_us:
            yield _quota(quota_us, period_us, folder / "cpu.cfs_quota_us")


def _quota(quota_us: int, period_us: int, path: Path) -> _Quota:
    stat = {}
    for line in (text(path.parent / "cpu.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if value.isdigit():
            stat[name] = int(value)
    return _Quota(quota_us / period_us, period_us, path, stat)


def _cpuset(groups: dict[str, list[Path]]) -> tuple[int, ...] | None:
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    for folder in [*groups.get("", []), *groups.get("cpuset", [])]:
        for name in names:
            words = text(folder / name)
            if words:
                return tuple(parse_cpus(words))
    return None


def _first_integers(
    groups: dict[str, list[Path]], controller: str, names: tuple[str, ...]
) -> Iterator[int]:
    for folder in [*groups.get("", []), *groups.get(controller, [])]:
        for name in names:
            value = integer(folder / name)
            if value is not None:
                yield value
