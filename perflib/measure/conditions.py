"""Conditions: what a measurement wants of its process, and whether the process really has it.

`Conditions` says what is requested; `check` refuses, before anything starts, what this machine
cannot give; `perflib.measure.launch` applies it to a child process; `observe` reads back from the
kernel what a process obtained, and `violated` names every difference. A condition left at its
default requests nothing: the process has whatever its parent has. What belongs to the whole machine
(a governor, the transparent-huge-page switch) is in `perflib.machine.settings.changes`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from perflib.machine.cpulist import parse_cpus
from perflib.machine.files import fields, text
from perflib.model.errors import MeasurementError, UserError, choose

MemoryPolicy = Literal["default", "bind", "preferred", "interleave"]
HugePages = Literal["default", "always", "never"]

_PADDING = "PERFLIB_PADDING"
_MAX_VARIABLE_BYTES = 128 * 1024 - 1  # the kernel's MAX_ARG_STRLEN, less the final NUL
_NO_RANDOMIZE = 0x0040000  # ADDR_NO_RANDOMIZE of personality(2)
_RESET_ON_FORK = 0x40000000  # a flag that sched_getscheduler mixes into the policy
_SCHEDULERS = {0: "OTHER", 1: "FIFO", 2: "RR", 3: "BATCH", 5: "IDLE", 6: "DEADLINE", 7: "EXT"}
_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_NODES = Path("/sys/devices/system/node/has_memory")


@dataclass(frozen=True)
class Conditions:
    """What is requested; every default means "as it is".

    Parameters
    ----------
    cpu
        The one logical CPU to run on.
    fifo_priority
        Real-time priority, 1 to 99, under SCHED_FIFO: nothing ordinary interrupts the process.
        The kernel stops a FIFO process that never sleeps for 50 ms of each second
        (``kernel.sched_rt_runtime_us``).
    aslr
        ``False`` puts stack, heap and libraries at the same addresses in every process.
    environment
        Variables that are set, in addition to the inherited ones.
    environment_bytes
        The size of the whole environment, the sum of ``len("NAME=VALUE") + 1``: a variable
        ``PERFLIB_PADDING`` fills it up. It moves the stack.
    preload
        Absolute paths of shared libraries to load first; they replace an inherited LD_PRELOAD.
    memory_node, memory_policy
        Where new pages come from: ``bind`` (that node or fail), ``preferred`` (that node if it has
        room), ``interleave`` (page by page over all nodes, or on the one node that is given).
    huge_pages
        ``never``: no transparent huge pages for this process, whatever the machine says.
        ``always``: transparent huge pages for all of its large memory. A process cannot demand
        that: it holds where the machine's switch says so (the system setting ``thp=always``), and
        is reported as violated elsewhere. A kernel that calls ``madvise(MADV_HUGEPAGE)`` for its
        own buffer needs neither: it leaves this at ``default`` and reads back what it obtained.
    """

    cpu: int | None = None
    fifo_priority: int | None = None
    aslr: bool = True
    environment: dict[str, str] = field(default_factory=dict)
    environment_bytes: int | None = None
    preload: tuple[str, ...] = ()
    memory_node: int | None = None
    memory_policy: MemoryPolicy = "default"
    huge_pages: HugePages = "default"

    def memory_nodes(self) -> list[int]:
        """The nodes that ``memory_policy`` speaks of."""
        if self.memory_policy == "default":
            return []
        return sorted(_nodes()) if self.memory_node is None else [self.memory_node]

    def process_environment(self) -> dict[str, str]:
        """The whole environment of the process, made from this one's.

        Raises
        ------
        UserError
            ``environment_bytes`` cannot be met; the message says which sizes can.
        """
        result = dict(os.environ)
        result.update(self.environment)
        result.pop(_PADDING, None)
        if self.preload:
            result["LD_PRELOAD"] = ":".join(self.preload)
        if self.environment_bytes is None:
            return result
        size = environment_bytes(result)
        overhead = environment_bytes({_PADDING: ""})
        gap = self.environment_bytes - size
        if gap == 0:
            return result
        if gap < overhead:
            msg = (
                f"environment_bytes={self.environment_bytes} cannot be had: without padding the "
                f"environment is {size} bytes already. Ask for {size}, or for {size + overhead} or "
                "more, or unset variables before starting."
            )
            raise UserError(msg)
        if gap > _MAX_VARIABLE_BYTES:
            msg = (
                f"environment_bytes={self.environment_bytes} cannot be had: one variable holds at "
                f"most {_MAX_VARIABLE_BYTES} bytes. Ask for at most "
                f"{size + _MAX_VARIABLE_BYTES}."
            )
            raise UserError(msg)
        result[_PADDING] = "x" * (gap - overhead)
        return result


def environment_bytes(environment: Mapping[str, str]) -> int:
    """The size of an environment as the kernel lays it out: the sum of len("NAME=VALUE") + 1."""
    return sum(
        len(os.fsencode(name)) + len(os.fsencode(value)) + 2 for name, value in environment.items()
    )


def inherited_preload() -> tuple[str, ...]:
    """What this process's own LD_PRELOAD names, and `Conditions` can name: files by whole paths."""
    words = os.environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return tuple(word for word in words if Path(word).is_absolute() and Path(word).is_file())


# --- before anything starts --------------------------------------------------------------------


def check(requested: Conditions) -> None:
    """Refuse what this machine or this process cannot give.

    What only privileges forbid (a FIFO priority) passes: the run continues and `violated` marks it.

    Raises
    ------
    UserError
        Names the condition, what it may be here, and what to do.
    """
    _check_scheduling(requested)
    _check_environment(requested)
    _check_memory(requested)


def _check_scheduling(requested: Conditions) -> None:
    if requested.cpu is not None and requested.cpu not in os.sched_getaffinity(0):
        msg = (
            f"cpu={requested.cpu}: this process may not run there. Allowed: CPUs "
            f"{_status()['Cpus_allowed_list']} (set by its affinity, a container or a batch "
            "system: 'taskset -cp $$' shows it)."
        )
        raise UserError(msg)
    lowest = os.sched_get_priority_min(os.SCHED_FIFO)
    highest = os.sched_get_priority_max(os.SCHED_FIFO)
    if requested.fifo_priority is not None and not lowest <= requested.fifo_priority <= highest:
        msg = f"fifo_priority={requested.fifo_priority}: it goes from {lowest} to {highest}"
        raise UserError(msg)


def _check_environment(requested: Conditions) -> None:
    for name, value in requested.environment.items():
        if not name or "=" in name or "\0" in name + value:
            msg = f"environment: {name!r}={value!r} is no variable (a NUL, or '=' in its name)"
            raise UserError(msg)
        if name in ("LD_PRELOAD", _PADDING):
            instead = "preload" if name == "LD_PRELOAD" else "environment_bytes"
            msg = f"environment: {name} is set through the condition '{instead}'"
            raise UserError(msg)
    for library in requested.preload:
        if not Path(library).is_file():
            msg = f"preload: there is no file {library!r}: give the path of a shared library"
        elif not Path(library).is_absolute():
            msg = f"preload: {library!r} is not absolute: write {str(Path(library).absolute())!r}"
        elif any(mark in library for mark in ": \n\t"):
            msg = f"preload: {library!r} holds a blank or a colon, which LD_PRELOAD cannot"
        else:
            continue
        raise UserError(msg)
    requested.process_environment()


def _check_memory(requested: Conditions) -> None:
    if requested.memory_policy not in get_args(MemoryPolicy):
        raise UserError(choose("memory_policy", requested.memory_policy, get_args(MemoryPolicy)))
    if requested.huge_pages not in get_args(HugePages):
        raise UserError(choose("huge_pages", requested.huge_pages, get_args(HugePages)))
    if requested.memory_node is None:
        if requested.memory_policy in ("bind", "preferred"):
            msg = f"memory_policy={requested.memory_policy!r} needs a memory_node"
            raise UserError(msg)
        return
    if requested.memory_policy == "default":
        msg = f"memory_node={requested.memory_node} needs a memory_policy: 'bind' or 'preferred'"
        raise UserError(msg)
    nodes = _nodes()
    if requested.memory_node not in nodes:
        msg = f"memory_node={requested.memory_node}: there is no such node for this process, only "
        raise UserError(msg + ", ".join(map(str, sorted(nodes))))


# --- what a process really has -----------------------------------------------------------------


def observe(pid: int | None = None, variables: Iterable[str] = ()) -> dict[str, Any]:
    """What is in force for a process, read back from the kernel; ``None`` where it will not say.

    Parameters
    ----------
    pid
        The process (``None``: this one), after it has started what it is to run: a library is
        preloaded, and the environment in place, only then.
    variables
        The environment variables to report. Others stay out: they may be secrets.

    Returns
    -------
    dict
        ``cpus``, ``scheduler`` (``OTHER``, ``FIFO`` ...), ``fifo_priority``, ``aslr``,
        ``environment``, ``environment_bytes``, ``preload`` (what of LD_PRELOAD is mapped),
        ``memory_policy``, ``memory_nodes``, ``huge_pages`` (``never``, or what the machine's switch
        says) and ``huge_page_bytes`` (what is on transparent huge pages now).

    Raises
    ------
    MeasurementError
        There is no such process (any more).
    """
    pid = os.getpid() if pid is None else pid
    try:
        cpus = sorted(os.sched_getaffinity(pid))
        scheduler = _SCHEDULERS.get(os.sched_getscheduler(pid) & ~_RESET_ON_FORK, "unknown")
        priority = os.sched_getparam(pid).sched_priority
    except ProcessLookupError:
        msg = f"process {pid} is gone: its conditions cannot be read back"
        raise MeasurementError(msg) from None
    block = _read(pid, "environ")
    environment = _environment(block)
    policy, nodes = _memory_policy(pid)
    return {
        "cpus": cpus,
        "scheduler": scheduler,
        "fifo_priority": priority if scheduler == "FIFO" else None,
        "aslr": _aslr(pid),
        "environment": {name: environment[name] for name in variables if name in environment},
        "environment_bytes": None if block is None else len(os.fsencode(block)),
        "preload": _mapped(pid, environment.get("LD_PRELOAD", "")),
        "memory_policy": policy,
        "memory_nodes": nodes,
        "huge_pages": "never" if _status(pid).get("THP_enabled") == "0" else _thp_switch(),
        "huge_page_bytes": _huge_page_bytes(pid),
    }


def _read(pid: int, name: str) -> str | None:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/{name}").read_bytes())
    except OSError:
        return None


def _status(pid: int | str = "self") -> dict[str, str]:
    return fields(Path(f"/proc/{pid}/status"))


def _environment(block: str | None) -> dict[str, str]:
    entries = (entry.partition("=") for entry in (block or "").split("\0") if entry)
    return {name: value for name, _, value in entries}


def _aslr(pid: int) -> bool | None:
    personality = _read(pid, "personality")
    switch = text("/proc/sys/kernel/randomize_va_space")
    if personality is None or switch is None:
        return None
    return not int(personality, 16) & _NO_RANDOMIZE and switch != "0"


def _mapped(pid: int, preload: str) -> list[str]:
    maps = (_read(pid, "maps") or "").splitlines() if preload else []
    files = {line.split(maxsplit=5)[5] for line in maps if "/" in line}
    return [path for path in preload.replace(":", " ").split() if os.path.realpath(path) in files]


def _memory_policy(pid: int) -> tuple[str | None, list[int]]:
    try:  # one line is enough, and the kernel walks the page tables for each
        with Path(f"/proc/{pid}/numa_maps").open() as maps:
            word = maps.readline().split()[1]
    except (OSError, IndexError):
        return None, []
    policy, _, nodes = word.partition(":")
    policy = policy.partition("=")[0]
    return {"prefer": "preferred"}.get(policy, policy), parse_cpus(nodes)


def _thp_switch() -> str:
    without = "[never]"  # a kernel without transparent huge pages
    return (text(_THP) or without).partition("[")[2].partition("]")[0]


def _huge_page_bytes(pid: int) -> int | None:
    found = fields(Path(f"/proc/{pid}/smaps_rollup")).get("AnonHugePages")
    return None if found is None else int(found.split()[0]) * 1024


def _nodes() -> set[int]:
    return {*parse_cpus(text(_NODES) or "0")} & {
        *parse_cpus(_status().get("Mems_allowed_list", "0"))
    }


# --- requested and obtained ----------------------------------------------------------------------


def violated(requested: Conditions, obtained: Mapping[str, Any]) -> list[str]:
    """One sentence for each condition that was requested and is not in force.

    Parameters
    ----------
    requested
        What was requested.
    obtained
        What `observe` read back, with ``requested.environment`` as its ``variables``.
    """
    sentences = []
    if requested.cpu is not None and obtained["cpus"] != [requested.cpu]:
        sentences.append(f"CPU: requested {requested.cpu}, may run on {obtained['cpus']}.")
    if requested.fifo_priority is not None and obtained["fifo_priority"] != requested.fifo_priority:
        sentences.append(
            f"FIFO priority: requested {requested.fifo_priority}, obtained scheduler "
            f"{obtained['scheduler']} (priority {obtained['fifo_priority'] or 0}). It takes "
            f"CAP_SYS_NICE: as root, with 'ulimit -r {requested.fifo_priority}' (rtprio in "
            "/etc/security/limits.conf), with 'setcap cap_sys_nice+ep' on the program, or in "
            "a container with '--cap-add SYS_NICE'."
        )
    if not requested.aslr and obtained["aslr"] is not False:
        sentences.append(
            f"ASLR: requested off, obtained {_said(obtained['aslr'])}. A container's seccomp "
            "profile may forbid personality(2); the system setting aslr=0 does it for the whole "
            "machine."
        )
    for name, value in requested.environment.items():
        if obtained["environment"].get(name) != value:
            found = obtained["environment"].get(name)
            sentences.append(f"environment: requested {name}={value!r}, obtained {_said(found)}.")
    size = requested.environment_bytes
    if size is not None and obtained["environment_bytes"] != size:
        sentences.append(
            f"environment: requested {size} bytes, obtained {_said(obtained['environment_bytes'])}."
        )
    sentences += [
        f"preload: requested {library}, which is not mapped. A static or set-user-id program, or "
        "one for another architecture, loads none."
        for library in requested.preload
        if library not in obtained["preload"]
    ]
    wanted = (requested.memory_policy, requested.memory_nodes())
    if requested.memory_policy != "default" and wanted != (
        obtained["memory_policy"],
        obtained["memory_nodes"],
    ):
        sentences.append(
            f"memory policy: requested {wanted[0]} on nodes {wanted[1]}, obtained "
            f"{_said(obtained['memory_policy'])} on {obtained['memory_nodes']}. A container's "
            "seccomp profile may forbid set_mempolicy(2): '--cap-add SYS_NICE' allows it."
        )
    if requested.huge_pages != "default" and obtained["huge_pages"] != requested.huge_pages:
        sentences.append(
            f"huge pages: requested {requested.huge_pages}, obtained "
            f"{_said(obtained['huge_pages'])}."
            + (
                " The system setting thp=always gives it."
                if requested.huge_pages == "always"
                else ""
            )
        )
    return sentences


def _said(value: object) -> str:
    words = {None: "nothing that can be read back", True: "on", False: "off"}
    return words[value] if value is None or isinstance(value, bool) else repr(value)
