"""The data and instruction caches, and which CPUs share each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from perflib.machine.cpulist import parse_cpus
from perflib.machine.files import integer, number_of, text
from perflib.model.sentences import size

CacheKind = Literal["data", "instruction", "unified"]
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Cache:
    """One cache. ``None``: the kernel does not say.

    In a virtual machine these are the hypervisor's words: the size is often the host's whole
    last-level cache, of which the guest gets what its neighbours leave.
    """

    level: int
    kind: CacheKind
    size_bytes: int
    ways: int | None
    line_bytes: int | None
    sets: int | None
    shared_cpus: tuple[int, ...]

    def __str__(self) -> str:
        """Short and for a reader: ``L1d 32 KiB``."""
        suffix = {"data": "d", "instruction": "i", "unified": ""}[self.kind]
        return f"L{self.level}{suffix} {size(self.size_bytes)}"


def caches(root: Path = Path("/")) -> tuple[Cache, ...]:
    """Every cache of the running CPUs, by level, kind and first CPU.

    Source: /sys/devices/system/cpu/cpuN/cache/indexM. Empty where the kernel shows none.
    """
    found: list[Cache] = []
    seen: set[tuple[str, int]] = set()
    places = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*"), key=number_of)
    for place in places:
        cpu = number_of(place)
        for index in sorted((place / "cache").glob("index[0-9]*"), key=number_of):
            if (index.name, cpu) in seen:
                continue
            cache = _cache(index, cpu)
            if cache is not None:
                found.append(cache)
                seen.update((index.name, other) for other in cache.shared_cpus)
    return tuple(sorted(found, key=lambda cache: (cache.level, cache.kind, cache.shared_cpus)))


def _cache(index: Path, cpu: int) -> Cache | None:
    level, words = integer(f"{index}/level"), text(f"{index}/size") or ""
    kind = (text(f"{index}/type") or "").lower()
    if level is None or kind not in ("data", "instruction", "unified"):
        return None
    if not words or not words.rstrip("KMG").isdigit():
        return None
    return Cache(
        level=level,
        kind=cast(CacheKind, kind),
        size_bytes=int(words.rstrip("KMG")) * _UNITS.get(words[-1], 1),
        ways=integer(f"{index}/ways_of_associativity") or None,
        line_bytes=integer(f"{index}/coherency_line_size"),
        sets=integer(f"{index}/number_of_sets"),
        shared_cpus=tuple(parse_cpus(text(f"{index}/shared_cpu_list") or str(cpu))),
    )
