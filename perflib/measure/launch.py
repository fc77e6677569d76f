"""Start a command under conditions: ``python launch.py parent=PID cpu=1 ... -- COMMAND``.

This runs in the launched child, before it becomes the command: it gives itself what survives
``exec`` (affinity, scheduler, personality, memory policy ...) and is then replaced. A callback
between fork and exec (``preexec_fn``) could do it without a second program, but deadlocks in a
parent with threads, which a notebook is.

Every measured process comes through here, so its start is what counts: it imports os, sys and
ctypes alone (12 ms against 8 ms for an empty Python and 28 ms with json, signal and dataclasses),
and runs as a file, isolated (``-I -S``), without any installed package.

A job of the user's has a supervisor: the launched child stays, a Python that sleeps, and the job
is its child. Whatever the job leaves behind becomes the supervisor's child, too, also what made
itself a daemon (PR_SET_CHILD_SUBREAPER), and is killed: when the job has ended, when the supervisor
gets a SIGTERM, and when the process that wanted the job is gone. `perflib.measure.supervised` is
the other end of its reports, one a line: ``pid N``, ``held``, ``failed ERRNO WHY`` (the job cannot
be started), ``ended LEFT``, ``waited STATUS CPU_NS LEFT``. The job stays a zombie, so that its
number stays its own, until the supervisor gets its SIGTERM.

What the kernel refuses is left out in silence: `conditions.observe` reads back what the
process really has, and `violated` says it. Only a CPU that it may not use and a command that
cannot be started are errors: exit status 2.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False  # typing's would have to be imported
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflib.measure.conditions import Conditions

# The module signal costs 4 ms.
_SIGKILL, _SIGPIPE, _SIGTERM, _SIGSTOP, _SIGXFSZ = 9, 13, 15, 19, 25
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_THP_DISABLE = 1, 36, 41
_END_S = 10.0  # how long what is left of a job is killed again and again: it may start others
_STARTED_NOTHING = 2
_ADDR_NO_RANDOMIZE, _ASK_PERSONALITY = 0x0040000, 0xFFFFFFFF
_MEMORY_POLICIES = {"preferred": 1, "bind": 2, "interleave": 3}
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 269}
_MAX_NODES = 1024


def command(conditions: Conditions, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """How to start ``argv`` under ``conditions``: what to pass to ``subprocess.Popen``.

    The process must be this one's direct child, and dies (SIGKILL) with the *thread* that started
    it: that thread must live as long as the process is wanted.

    Returns
    -------
    tuple
        The argument list and the environment.

    Raises
    ------
    UserError
        The environment cannot have the size that is requested.

    Examples
    --------
    >>> argv, env = command(Conditions(cpu=1, aslr=False), ["./job"])  # doctest: +SKIP
    >>> process = subprocess.Popen(argv, env=env)  # doctest: +SKIP
    """
    words, environment = _words(conditions, None)
    return _launched([f"parent={os.getpid()}", *words], argv), environment


def supervised(
    conditions: Conditions,
    argv: Sequence[str],
    report: int,
    *,
    held: bool,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """How to start ``argv`` under ``conditions`` as the child of a supervisor, as of `command`.

    Parameters
    ----------
    report
        A descriptor that the supervisor inherits, for its reports.
    held
        The job is stopped before its first instruction until it gets a SIGCONT.
    environment
        The whole environment of the job, in place of that of the conditions.
    """
    words, environment = _words(conditions, environment)
    words = [f"supervised={os.getpid()}:{report}", *words, *(["held=yes"] if held else [])]
    return _launched(words, argv), environment


def _launched(words: Sequence[str], argv: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", __file__, *words, "--", *argv]


def _words(
    conditions: Conditions, whole: Mapping[str, str] | None
) -> tuple[list[str], dict[str, str]]:
    """What the launched child is to do, and its environment."""
    words = []
    if conditions.cpu is not None:
        words.append(f"cpu={conditions.cpu}")
    if conditions.fifo_priority is not None:
        words.append(f"fifo_priority={conditions.fifo_priority}")
    if not conditions.aslr:
        words.append("aslr=off")
    if conditions.memory_policy != "default":
        nodes = ",".join(map(str, conditions.memory_nodes()))
        words.append(f"memory={conditions.memory_policy}:{nodes}")
    if conditions.huge_pages != "default":
        words.append(f"huge_pages={conditions.huge_pages}")
    environment = conditions.process_environment() if whole is None else dict(whole)
    if conditions.preload or (whole and "LD_PRELOAD" in whole):  # not for this Python
        words.append(f"preload={environment.pop('LD_PRELOAD')}")
    return words, environment


class _ImpossibleError(Exception):
    pass


# --- the supervisor -----------------------------------------------------------------------------


def _supervised(parent_and_report: str) -> None:
    """Continue as a child; what was launched stays behind as its supervisor, and never returns."""
    import signal

    parent, _, report = parent_and_report.partition(":")
    os.set_inheritable(int(report), False)
    wanted = {signal.SIGCHLD, signal.SIGTERM}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, no child would be there to wait for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    _libc().prctl(_PR_SET_CHILD_SUBREAPER, _word(1), _word(0), _word(0), _word(0))
    _parent(parent, _SIGTERM)
    supervisor = os.getpid()
    job = os.fork()
    if job == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _parent(str(supervisor))
        return
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # the job alone has them: closed by it, they are closed
        os.dup2(null, standard)
    _report(report, f"pid {job}")
    ended = False
    while signal.sigwait(wanted) == signal.SIGCHLD:
        if not ended and _has_ended(job):
            ended = True
            _report(report, f"ended {_end_all_but(job)}")
        elif not ended and _has_stopped(job):
            _report(report, "held")
    _report(report, "waited {} {} {}".format(*_waited(job)))
    os._exit(0)


def _report(descriptor: str, line: str) -> None:
    try:  # noqa: SIM105
        os.write(int(descriptor), os.fsencode(line + "\n"))
    except OSError:  # nobody reads it any more
        pass


def _has_ended(job: int) -> bool:
    """Whether the job has; other children that have ended are waited for."""
    while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if found.si_pid == job:
            return True
        os.waitpid(found.si_pid, 0)
    return False


def _has_stopped(job: int) -> bool:
    try:
        return os.waitid(os.P_PID, job, os.WSTOPPED | os.WNOHANG) is not None
    except ChildProcessError:  # it has ended meanwhile, which the next signal reports
        return False


def _end_all_but(job: int) -> int:
    """Kill what a job has started, until there is nothing more; how many processes are left."""
    import time

    limit = time.monotonic() + _END_S
    while (left := [child for child in _children() if child != job]) and time.monotonic() < limit:
        for child in left:
            try:  # noqa: SIM105
                os.kill(child, _SIGKILL)
            except OSError:  # another user's
                pass
            try:  # noqa: SIM105
                os.waitpid(child, os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.001)  # its children become ours
    return len(left)


def _waited(job: int) -> tuple[int, int, int]:
    """Kill all of a job: its status, its CPU time in ns, and how many processes are left."""
    import time

    try:  # noqa: SIM105
        os.kill(job, _SIGKILL)
    except OSError:
        pass
    limit = time.monotonic() + _END_S
    while not os.waitid(os.P_PID, job, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if time.monotonic() > limit:
            break
        time.sleep(0.001)
    _end_all_but(job)  # those that it left are ours now
    ended, status, usage = os.wait4(job, os.WNOHANG)
    left = _end_all_but(0)  # with the job among its children, /proc may skip others
    cpu_ns = round(1e9 * (usage.ru_utime + usage.ru_stime))
    return (status, cpu_ns, left) if ended else (_SIGKILL, cpu_ns, left)


def _children() -> list[int]:
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [int(name) for name in os.listdir("/proc") if _parent_of(name) == own]  # noqa: PTH208


def _parent_of(name: str) -> int:
    try:
        with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):  # no process, or none any more
        return 0


# --- conditions ---------------------------------------------------------------------------------


def _held(_yes: str) -> None:
    os.kill(os.getpid(), _SIGSTOP)


def _parent(pid: str, signal: int = _SIGKILL) -> None:
    _libc().prctl(_PR_SET_PDEATHSIG, _word(signal), _word(0), _word(0), _word(0))
    if os.getppid() != int(pid):  # it died before the line above, or never was our parent
        msg = f"the process {pid} that wants this command is not its parent (any more)"
        raise _ImpossibleError(msg)


def _cpu(number: str) -> None:
    try:
        os.sched_setaffinity(0, {int(number)})
    except OSError as error:
        allowed = sorted(os.sched_getaffinity(0))
        msg = f"cannot run on CPU {number} ({error.strerror}); allowed: {allowed}"
        raise _ImpossibleError(msg) from None


def _fifo_priority(priority: str) -> None:
    try:  # noqa: SIM105 (contextlib costs 2 ms)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(int(priority)))
    except OSError:
        pass


def _aslr(_off: str) -> None:
    now = _libc().personality(_word(_ASK_PERSONALITY))
    _libc().personality(_word(now | _ADDR_NO_RANDOMIZE))


def _memory(policy_and_nodes: str) -> None:
    policy, _, nodes = policy_and_nodes.partition(":")
    mask = sum(1 << int(node) for node in nodes.split(",")).to_bytes(_MAX_NODES // 8, "little")
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is not None:
        mode = ctypes.c_int(_MEMORY_POLICIES[policy])
        _libc().syscall(_word(number), mode, mask, _word(_MAX_NODES + 1))


def _huge_pages(wanted: str) -> None:
    disable = _word(wanted == "never")
    _libc().prctl(_PR_SET_THP_DISABLE, disable, _word(0), _word(0), _word(0))


_APPLY = {
    "supervised": _supervised,
    "held": _held,
    "parent": _parent,
    "cpu": _cpu,
    "fifo_priority": _fifo_priority,
    "aslr": _aslr,
    "memory": _memory,
    "huge_pages": _huge_pages,
}


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _word(value: int) -> ctypes.c_ulong:
    """An argument as wide as a register, which prctl and syscall read."""
    return ctypes.c_ulong(value)


def _environment() -> dict[str, str]:
    """The environment as it was handed over: in the C locale Python adds LC_CTYPE to its own."""
    with open("/proc/self/environ", "rb") as block:  # noqa: PTH123 (pathlib costs 5 ms)
        entries = os.fsdecode(block.read()).split("\0")
    return {name: value for name, _, value in (entry.partition("=") for entry in entries if entry)}


def main(arguments: list[str]) -> None:
    """Apply the words before ``--`` and become the command after it."""
    split = arguments.index("--")
    argv = arguments[split + 1 :]
    environment = _environment()
    try:
        for word in arguments[:split]:
            name, _, value = word.partition("=")
            if name == "preload":
                environment["LD_PRELOAD"] = value
            else:
                _APPLY[name](value)
        for ignored_by_python in (_SIGPIPE, _SIGXFSZ):  # and by what it starts, if left so
            _libc().signal(ignored_by_python, None)
        os.execvpe(argv[0], argv, environment)
    except (_ImpossibleError, OSError) as error:
        name, _, value = arguments[0].partition("=")
        if name == "supervised":
            _report(value.partition(":")[2], f"failed {getattr(error, 'errno', 0)} {error}")
            os._exit(_STARTED_NOTHING)
        print(f"perflib: cannot start {argv[0]!r}: {error}", file=sys.stderr)
        sys.exit(_STARTED_NOTHING)


if __name__ == "__main__":
    main(sys.argv[1:])
