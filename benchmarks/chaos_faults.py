"""What is done to a running command: each fault, how it is undone, and how the command may end."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos_run import Subject, kill
from perflib.machine.processes import family
from perflib.machine.settings.guard import write_setting

_SENTENCE = (0, 1, 2)  # it was measured, it failed, it cannot be done: each with a sentence
_KILLED = (*_SENTENCE, -signal.SIGKILL)
_CGROUPS = Path("/sys/fs/cgroup")
_ON_HUGE_PAGES = ("random_calls", "code_segment", "memory_levels")
_HUGE_PAGE_BYTES = 2 << 20
_POOL = Path("/proc/sys/vm/nr_hugepages")


def _nothing(_: Subject) -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """One kind of fault.

    Parameters
    ----------
    name
        What the table calls it.
    strike
        Does it, at the moment that was drawn. ``False``: there was nothing that it could hit.
    before
        What it needs before the command starts.
    mend
        Undoes it once the command has ended: what is resumed runs without.
    ends
        The exit statuses with which the command may end.
    resumes
        How many resume the run at the same time; one of them may.
    cold
        Whether the kernels are to be compiled.
    once_more
        Whether the same command is to succeed afterwards, on the same cache.
    private
        Whether it takes a mount namespace, and so root.
    experiments
        Those that it concerns; all, where there are none.
    shim
        Whether the command runs with the shim.
    may_lack
        Whether it takes trials out of rounds, which the run is then to say.
    """

    name: str
    strike: Callable[[Subject], bool | None]
    before: Callable[[Subject], None] = _nothing
    mend: Callable[[Subject], None] = _nothing
    ends: tuple[int, ...] = _SENTENCE
    resumes: int = 1
    cold: bool = False
    once_more: bool = False
    private: bool = False
    experiments: tuple[str, ...] = ()
    shim: bool = False
    may_lack: bool = False


# --- processes that end --------------------------------------------------------------------------


def _kill_command(run: Subject) -> None:
    kill(run.pid)


def _kill_worker(run: Subject) -> bool:
    if not run.wait_until(lambda: bool(run.workers())):
        return False
    if workers := run.workers():
        kill(run.chance.choice(workers))
    return bool(workers)


def _kill_guard(run: Subject) -> bool:
    if not run.wait_until(lambda: bool(run.guards())):
        return False
    for pid in run.guards():
        kill(pid)
    return True


def _kill_all(run: Subject) -> None:
    everybody = family(os.getpid())[1:]
    run.chance.shuffle(everybody)
    for pid in everybody:
        kill(pid)


def _to_group(number: signal.Signals) -> Callable[[Subject], bool]:
    """What a terminal does: the signal goes to the command and to all in its group."""

    def strike(run: Subject) -> bool:
        if not run.wait_until(run.listens):
            return False
        os.killpg(run.pid, number)
        return True

    return strike


def _terminate(run: Subject) -> bool:
    if not run.wait_until(run.listens):
        return False
    kill(run.pid, signal.SIGTERM)
    return True


def _suspend(run: Subject) -> None:
    os.killpg(run.pid, signal.SIGSTOP)
    time.sleep(2.0)
    os.killpg(run.pid, signal.SIGCONT)


# --- the disk ------------------------------------------------------------------------------------


def _fill(run: Subject) -> None:
    with (run.home / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))


def _make_room(run: Subject) -> None:
    (run.home / "filler").unlink(missing_ok=True)


def _shim(*control: int) -> Callable[[Subject], None]:
    return lambda run: run.shim(*control)


def _vanish(run: Subject) -> None:
    run.home.rename(run.folder / "gone")


def _reappear(run: Subject) -> None:
    """The folder is there again; what was written in its place meanwhile is put into it."""
    gone = run.folder / "gone"
    if not gone.is_dir():
        return
    if run.home.is_dir():
        shutil.copytree(run.home, gone, dirs_exist_ok=True)
        shutil.rmtree(run.home)
    gone.rename(run.home)


# --- clocks, processors, memory ------------------------------------------------------------------


def _step_clock(run: Subject) -> None:
    run.shim(run.chance.choice([-400 * 86400, -3600, -1, 1, 3600, 4000 * 86400]), 0, 0)


def _enter(controller: str) -> Callable[[Subject], None]:
    """Start the command in a control group of its own."""

    def before(run: Subject) -> None:
        group = _group(run, controller)
        group.mkdir()
        if controller == "cpuset":
            for name in ("cpuset.cpus", "cpuset.mems"):
                (group / name).write_text((group.parent / name).read_text())
        run.launcher = ["sh", "-c", f'echo $$ > {group}/tasks && exec "$@"', "sh"]
        run.undo.append(lambda: _leave(group))

    return before


def _group(run: Subject, controller: str) -> Path:
    return _CGROUPS / controller / f"chaos-{os.getpid()}-{run.folder.name}"


def _leave(group: Path) -> None:
    for pid in (group / "tasks").read_text().split():
        kill(int(pid))
    for _ in range(100):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)


def _take_cpu(run: Subject) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    keep = run.chance.choice(cpus)
    (_group(run, "cpuset") / "cpuset.cpus").write_text(f"{keep}\n")


def _give_cpus(run: Subject) -> None:
    group = _group(run, "cpuset")
    (group / "cpuset.cpus").write_text((group.parent / "cpuset.cpus").read_text())


def _limit_memory(run: Subject) -> None:
    """No more address space than it has, for the command and all that it starts."""
    for pid in family(run.pid):
        with contextlib.suppress(OSError):
            size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * mmap.PAGESIZE
            more = run.chance.choice([1 << 20, 16 << 20, 64 << 20])
            resource.prlimit(pid, resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))


def _limit_group(run: Subject) -> None:
    group = _group(run, "memory")
    used = int((group / "memory.usage_in_bytes").read_text())
    with contextlib.suppress(OSError):  # it has more by now
        (group / "memory.limit_in_bytes").write_text(
            f"{used + run.chance.choice([1, 8, 32]) * (1 << 20)}\n"
        )


def _lift_limit(run: Subject) -> None:
    (_group(run, "memory") / "memory.limit_in_bytes").write_text("-1\n")


def _on_huge_pages(run: Subject) -> None:
    run.words = [word for word in run.words if not word.startswith(("backings=", "settings="))]
    run.words.append("backings=4k,hugetlb")
    run.watch(_POOL)


def _steal_pool(run: Subject) -> bool:
    """Somebody else maps all huge pages that are free, or changes how many there are."""
    before = run.settings[_POOL]
    if not run.wait_until(lambda: _POOL.read_text().strip() != before):
        return False
    if run.chance.random() < 0.5:
        free = _free_huge_pages()
        if free:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000  # MAP_HUGETLB
            with contextlib.suppress(OSError):
                stolen = mmap.mmap(-1, free * _HUGE_PAGE_BYTES, flags=flags)
                run.undo.append(stolen.close)
                for page in range(free):
                    stolen[page * _HUGE_PAGE_BYTES] = 1
    else:
        write_setting(str(_POOL), str(int(before) + 1))
        run.settings[_POOL] = str(int(before) + 1)  # what somebody else has set stays
        run.undo.append(lambda: write_setting(str(_POOL), before))
    return True


def _give_pool(run: Subject) -> None:
    for undo in [one for one in run.undo if getattr(one, "__name__", "") == "close"]:
        undo()
        run.undo.remove(undo)


def _free_huge_pages() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("HugePages_Free:"):
            return int(line.split()[1])
    return 0


# --- compilers -----------------------------------------------------------------------------------

_COMPILER = r"""#!/bin/sh
out=
for word; do [ "$last" = -o ] && out=$word; last=$word; done
mode=$(cat {folder}/mode)
if [ "$1" = --version ]; then
  case $mode in
    lies) printf 'gcc \377\376 \033[31m'; head -c 100000 /dev/zero | tr '\0' x; exit 3 ;;
    mute) exit 0 ;;
    *) exec {real} --version ;;
  esac
fi
case $mode in
  fails) echo "internal compiler error: all of it" >&2; exit 1 ;;
  crashes) kill -SEGV $$ ;;
  hangs) exec sleep 1000 ;;
  silent) exit 0 ;;
  garbage) head -c 5000 /dev/urandom > "$out"; exit 0 ;;
  empty) : > "$out"; exit 0 ;;
  cut) {real} "$@" || exit; head -c 3000 "$out" > "$out.part"; mv "$out.part" "$out"; exit 0 ;;
  other) exec {real} -shared -fPIC -x c /dev/null -o "$out" ;;
  *) exec {real} "$@" ;;
esac
"""
COMPILERS = (
    "fails",
    "crashes",
    "hangs",
    "silent",
    "garbage",
    "empty",
    "cut",
    "other",
    "lies",
    "mute",
)
_PATIENCE_S = 10
_FEW_KERNELS = ("machine", "numa", "coherence", "alias_map", "allocators", "threads")


def _compiler(mode: str) -> Callable[[Subject], None]:
    def before(run: Subject) -> None:
        real = shutil.which("gcc") or shutil.which("cc") or "cc"
        script = run.folder / "cc"
        script.write_text(_COMPILER.format(folder=run.folder, real=real))
        script.chmod(0o700)
        (run.folder / "mode").write_text(mode)
        run.environment |= {"PERFLIB_CC": str(script), "PERFLIB_CC_TIMEOUT_S": str(_PATIENCE_S)}

    return before


def _honest(run: Subject) -> None:
    (run.folder / "mode").write_text("honest")
    run.environment.pop("PERFLIB_CC_TIMEOUT_S", None)


def _compilers() -> Iterable[Fault]:
    for mode in COMPILERS:
        yield Fault(
            f"compiler: {mode}", lambda _: None, _compiler(mode), _honest, cold=True,
            once_more=True, experiments=_FEW_KERNELS,
        )  # fmt: skip


def _compiler_goes(run: Subject) -> None:
    (run.folder / "cc").unlink()


def _compiler_returns(run: Subject) -> None:
    _compiler("honest")(run)
    _honest(run)


FAULTS: dict[str, Fault] = {
    one.name: one
    for one in (
        Fault("kill -9 of the command", _kill_command, ends=_KILLED),
        Fault("kill -9 of a worker", _kill_worker),
        Fault("kill -9 of the guard", _kill_guard, private=True),
        Fault("kill -9 of all", _kill_all, ends=_KILLED),
        Fault(
            "kill -9 while compiling", _kill_all, ends=_KILLED, cold=True, once_more=True
        ),
        Fault(
            "SIGINT to the group", _to_group(signal.SIGINT), ends=(*_SENTENCE, -signal.SIGINT)
        ),
        Fault("SIGTERM", _terminate),
        Fault("SIGHUP to the group", _to_group(signal.SIGHUP)),
        Fault("suspended for 2 s", _suspend),
        Fault(
            "disk full",
            _fill,
            lambda run: run.small_disk(run.chance.choice([8, 64])),
            _make_room,
            private=True,
        ),
        Fault("disk full for all calls", _shim(0, 0, errno.ENOSPC), mend=_shim(0, 0, 0), shim=True),
        Fault("store read-only", _shim(0, 0, errno.EROFS), mend=_shim(0, 0, 0), shim=True),
        Fault("disk errors", _shim(0, 0, errno.EIO), mend=_shim(0, 0, 0), shim=True),
        Fault("slow disk (0.2 s a call)", _shim(0, 200_000, 0), mend=_shim(0, 0, 0), shim=True),
        Fault("store vanished", _vanish, mend=_reappear),
        Fault("clock stepped", _step_clock, shim=True),
        Fault("CPU out of the cpuset", _take_cpu, _enter("cpuset"), _give_cpus, private=True,
              may_lack=True),
        Fault("address space limited", _limit_memory),
        Fault(
            "memory limit of the group", _limit_group, _enter("memory"), _lift_limit, ends=_KILLED,
            private=True,
        ),
        Fault("two resumes at once", _kill_command, ends=_KILLED, resumes=2),
        Fault(
            "huge-page pool stolen", _steal_pool, _on_huge_pages, _give_pool, private=True,
            experiments=_ON_HUGE_PAGES,
        ),
        *_compilers(),
        Fault(
            "compiler: goes", _compiler_goes, _compiler("honest"), _compiler_returns, cold=True,
            once_more=True, experiments=_FEW_KERNELS,
        ),
    )
}  # fmt: skip


def moment(chance: random.Random, fault: Fault) -> tuple[str, float]:
    """When a fault comes: after a share of the time, after a share of the trials, or at saving."""
    if fault.name.startswith("compiler: ") and fault.strike is not _compiler_goes:
        return "start", 0.0
    if fault.cold:
        return "time", chance.uniform(0.02, 0.4)
    kind = chance.choices(["time", "trials", "saving"], [0.55, 0.35, 0.1])[0]
    return kind, chance.uniform(0.02, 0.98)
