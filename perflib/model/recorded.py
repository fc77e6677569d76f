"""What a run records beside its samples: a list of all of it, and what stays out of it.

A test compares the list with what real runs hold, and docs/recorded.md with the list. In a place
``*`` stands for keys that depend on the run (a core's number, a function's name); entries of lists
have the place of their list.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RECORDED",
    "Recorded",
    "change_texts",
    "is_fixed",
    "names_of_user",
    "row_of",
    "unlisted",
    "with_user",
    "without_user",
]

Anonymous = Literal["", "host", "process", "job", "left out"]


@dataclass(frozen=True)
class Recorded:
    """Keys of one place in a run's provenance, what they hold, and what an export makes of it.

    ``anonymous``: what stands there in an anonymous export, ``host`` for ``host-1``; empty: the
    value itself, without names and paths that its texts hold.
    """

    place: str
    keys: str
    holds: str
    anonymous: Anonymous = ""

    def places(self) -> Iterator[tuple[str, ...]]:
        """Each key's whole place."""
        for key in self.keys.split():
            yield (*self.place.split("."), key) if self.place else (key,)


_KERNEL = "kernel variant copies define source_sha256 compiler compiler_version flags link bundle"
_BUNDLE = "sha256 level compiled_here"
_LIBRARY = "name kind path version threading core_type dgemv set_threads"
_REQUESTED = "cpu fifo_priority aslr environment_bytes memory_node memory_policy huge_pages"
_OBTAINED = "cpus scheduler fifo_priority aslr environment_bytes memory_policy memory_nodes"
_OBTAINED += " huge_pages huge_page_bytes"

RECORDED = (
    # What says something of a user, or of whose machine it is.
    Recorded("machine", "hostname", "the host's name, which tells runs of one make apart", "host"),
    Recorded(
        "machine",
        "machine_id boot_id",
        "keyed hashes of the machine-id and of the boot's: is it the same machine?",
        "left out",
    ),
    Recorded("", "tag", "what you marked the run with, or its investigation's name", "left out"),
    Recorded("", "job", "the job's command line, or its process and its log's name", "job"),
    Recorded("tasks.*", "name", "names of other tasks that used the core most", "process"),
    Recorded("tasks.*", "pid", "their process numbers", "left out"),
    Recorded("tasks.*", "percent bound policy nice", "how much each used, and under which policy"),
    Recorded("", "problems remarks", "sentences on what went wrong; a failed job's last words"),
    Recorded("kernel", "compiler", "path of the compiler"),
    Recorded("conditions.*", "environment", "variables that were set for the job: yours alone"),
    Recorded("conditions.*.environment", "*", "their values"),
    Recorded("conditions.*", "preload", "paths of libraries to be loaded first"),
    Recorded("allocators", "name path", "allocators that were compared, and their files"),
    Recorded("blas", _LIBRARY, "libraries of linear algebra, and their files"),
    # The machine.
    Recorded(
        "machine",
        "fingerprint microarchitecture product processor vendor family model stepping microcode"
        " architecture memory_bytes clocksource tsc_flags cpuid_missing",
        "the processor and its make",
    ),
    Recorded("machine", "kernel system hypervisor container", "operating system and what is below"),
    Recorded(
        "machine.firmware",
        "product board bios_version bios_date memory_modules",
        "the mainboard's firmware and its memory modules; no serial numbers",
    ),
    Recorded(
        "machine.topology",
        "packages dies cores threads_per_core nodes online offline allowed isolated",
        "how many of what, and which this process may use",
    ),
    Recorded(
        "machine.cpus",
        "cpu package die core node online allowed isolated siblings where",
        "every logical CPU",
    ),
    Recorded("machine.nodes", "node cpus memory_bytes distances", "every memory node"),
    Recorded(
        "machine.caches", "name level kind size_bytes line_bytes ways sets shared_by", "caches"
    ),
    Recorded("machine.tlbs", "level kind page_bytes entries ways", "TLBs"),
    Recorded("machine", "tlbs_origin tlbs_source", "where the TLBs are known from"),
    Recorded(
        "machine.limits",
        "version cpus quota_cpus quota_path period_us periods throttled_periods memory_bytes",
        "limits of the control group, and the file that sets its quota",
    ),
    Recorded(
        "machine.pmu", "available reason counters", "hardware counters, or why there are none"
    ),
    Recorded("machine.frequency", "driver minimum_khz base_khz maximum_khz", "frequencies"),
    Recorded("machine.settings", "*", "system settings (governor, huge pages, ASLR ...)"),
    Recorded("machine.mitigations", "*", "what the kernel does against speculative attacks"),
    # How it was measured.
    Recorded(
        "", "start end measured_s trials failed_trials stopped", "when, how much, why it ended"
    ),
    Recorded(
        "versions",
        "perflib python implementation numpy pandas scipy cffi duckdb",
        "versions of perflib, Python and packages",
    ),
    Recorded(
        "recording",
        "machine title day",
        "the recorded machine that the run was given from, in place of measuring",
    ),
    Recorded("settings_changed.*", "before now", "system settings changed for the run"),
    Recorded("kernel", _KERNEL.replace("compiler ", ""), "the compiled kernel, to make it again"),
    Recorded("kernel.define", "*", "constants that it was compiled with"),
    Recorded("kernel.bundle", _BUNDLE, "the bundle of compiled kernels that was used"),
    *(
        Recorded(other + below, keys, f"the same, of {whose}")
        for other, whose in (("kernels", "every kernel"), ("program", "the program"))
        for below, keys in (("", _KERNEL), (".define", "*"), (".bundle", _BUNDLE))
    ),
    Recorded("conditions.requested", _REQUESTED, "conditions that were requested of each process"),
    Recorded("conditions.obtained", _OBTAINED, "what the kernel says that it obtained"),
    Recorded("conditions", "violated", "sentences on how the two differ"),
    # What single experiments add.
    Recorded("softirqs.*", "ticks of_ticks", "kv_per_core: soft interrupts on each core, in ticks"),
    Recorded("softirqs.*.kinds", "*", "their counts by kind"),
    Recorded("series", "mode set jobs", "counters: readings over time"),
    Recorded("series.readings", "at_ms event set ran_ms value", "counters: the readings"),
    Recorded("", "sampled", "event_profile: what was sampled"),
    Recorded("objects", "*", "event_profile: build ids of programs and libraries with samples"),
    Recorded("instructions", "*", "event_profile: where a function's instructions begin"),
    Recorded("", "backend cpus", "threads: what recorded the threads, and the CPUs"),
    Recorded("backends", "*", "threads: why a backend cannot be used here"),
    Recorded(
        "recorded",
        "call_graph duration_s follow ignore max_data_mb sample_period_us skip_s spin_functions"
        " stack_bytes threads",
        "threads: how it recorded",
    ),
    Recorded("recordings", "*", "threads, count: names of the recordings beside the run"),
    Recorded("", "openblas_coretype", "alias_offsets: OPENBLAS_CORETYPE of your environment"),
    Recorded("simulated", "tool model elements shift_bytes", "what was simulated, and by what"),
    Recorded("simulated.rows", "*", "results of the simulation"),
    # What was decided when the run began, so that it goes on in the same way when resumed.
    Recorded(
        "plan", "cores cpus heads near nodes memory_only pairs", "which CPUs and memory nodes"
    ),
    Recorded("plan", "configurations chunks steps stretch", "the configurations and their size"),
    Recorded(
        "plan",
        "copies events repeats loads slice_steps checksums pieces piece_bytes pages strides sizes"
        " level_sizes array_bytes cache_bytes own_bytes link_bytes hugetlb_pages",
        "sizes and counts",
    ),
    Recorded("plan.pieces", "*", "code_segment, random_calls: numbers of pieces by pattern"),
    Recorded("plan.pages", "*", "data_tlb: numbers of pages by their size"),
    Recorded("plan", "backend reference states sets sampled backings", "what is measured, and how"),
    Recorded("plan", "not_sampled notes smaller", "sentences on what cannot be measured here"),
    Recorded("plan", "absent", "what is not there, and why"),
    Recorded("plan.absent", "*", "the same, by name"),
    Recorded("plan.page_reach", "*", "a check of the pages' size, by backing"),
    Recorded("plan.origin", "*", "alias_environment: addresses of its variables"),
    Recorded("plan.predicted", "*", "alias_environment: which variables collide, by size"),
    Recorded("plan.implementations.*", "matrix parity_checksum repeats slices", "erasure_coding"),
    Recorded("plan.allocators", "name path", "allocators that are compared, and their files"),
    Recorded("plan.libraries", _LIBRARY, "libraries of linear algebra, and their files"),
    Recorded("", "intervals", "count: how many intervals were read"),
    Recorded(
        "plan.geometries", "geometry source", "simulate: the caches and TLBs, and their source"
    ),
    Recorded("plan.geometries.levels", "*", "size or entries, and ways, by level"),
    Recorded("plan.targets", "kind name", "what_if: functions and locks, by name"),
    Recorded("plan.targets.places", "module start end", "their files, and where they are there"),
    Recorded(
        "plan",
        "factors fresh apart builds tried foretold environment_bytes counted uncounted",
        "layout: levels of each factor, layouts a round, rounds between two starts of one, what a "
        "few starts foretell, sets of counters",
    ),
    Recorded("plan.factors", "*", "layout: the levels"),
    Recorded("plan.factors.allocator", "name path", "allocators, and their files"),
    Recorded("plan.foretold", "pairs seconds tried", "how many pairs of starts two builds take"),
    Recorded("plan", "openblas_coretype", "OPENBLAS_CORETYPE of your environment"),
)


def _alike(listed: tuple[str, ...], place: tuple[str, ...]) -> bool:
    """Whether a place is a listed one, or on the way to it."""
    return len(listed) >= len(place) and all(
        wanted in ("*", key) for wanted, key in zip(listed, place, strict=False)
    )


@functools.cache
def row_of(place: tuple[str, ...]) -> Recorded | None:
    """The list's line of a place in the provenance."""
    for row in RECORDED:
        if any(len(listed) == len(place) and _alike(listed, place) for listed in row.places()):
            return row
    return None


@functools.cache
def is_fixed(place: tuple[str, ...]) -> bool:
    """Whether the last key of a place is one that the list names: it is no run's own."""
    end = len(place)
    return any(
        _alike(listed, place) and listed[end - 1] != "*"
        for row in RECORDED
        for listed in row.places()
    )


def unlisted(provenance: Any, place: tuple[str, ...] = ()) -> Iterator[str]:
    """The places of a provenance that the list lacks."""
    if isinstance(provenance, Mapping):
        for key, value in provenance.items():
            here = (*place, key)
            if any(_alike(listed, here) for row in RECORDED for listed in row.places()):
                yield from unlisted(value, here)
            else:
                yield ".".join(here)
    elif isinstance(provenance, list | tuple):
        for value in provenance:
            yield from unlisted(value, place)


# --- what stays out -------------------------------------------------------------------------------


def names_of_user() -> tuple[set[str], set[str]]:
    """Home folders and names of the user whose process this is; root is nobody's name."""
    homes, names = {os.environ.get("HOME", "")}, {os.environ.get("USER", "")}
    names.add(os.environ.get("LOGNAME", ""))
    with contextlib.suppress(KeyError):  # a number without a name, as containers have it
        entry = pwd.getpwuid(os.getuid())
        homes.add(entry.pw_dir)
        names.add(entry.pw_name)
    return {home.rstrip("/") for home in homes} - {""}, names - {"", "root"}


def without_user(value: Any) -> Any:
    """A record whose paths have ``~`` and ``$USER`` in place of the user's home and name."""
    homes, names = names_of_user()
    longest_first = sorted(homes, key=len, reverse=True)
    patterns = [(rf"(?<![\w.-]){re.escape(home)}(?![\w.-])", "~") for home in longest_first]
    patterns += [(rf"(?<=/){re.escape(name)}(?![\w.-])", "$USER") for name in names]

    def changed(text: str) -> str:
        for pattern, instead in patterns:
            text = re.sub(pattern, lambda _: instead, text)  # noqa: B023
        return text

    return change_texts(value, changed)


def with_user(path: str) -> str:
    """A path that `without_user` wrote, as it is on the user's own machine."""
    return os.path.expandvars(Path(path).expanduser())


def change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A record, or a table of samples, whose texts are changed; keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: change_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [change_texts(inner, change) for inner in value]
    if hasattr(value, "columns"):
        return _table_changed(value, change)
    return value


def _table_changed(samples: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """A text stands in many rows: it is changed once."""
    found = {}
    for name, column in samples.select_dtypes(exclude="number").items():
        texts = {one for one in column.unique() if isinstance(one, str)}
        changed = {one: new for one in texts if (new := change(one)) != one}
        if changed:
            found[str(name)] = column.map(lambda one: changed.get(one, one))  # noqa: B023
    return samples.assign(**found)
