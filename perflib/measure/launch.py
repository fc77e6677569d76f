"""Start a command under conditions: ``python launch.py parent=PID cpu=1 ... -- COMMAND``.

This runs in the launched child, before it becomes the command: it gives itself what survives
``exec`` (affinity, scheduler, personality, memory policy ...) and is then replaced. A callback
between fork and exec (``preexec_fn``) could do it without a second program, but deadlocks in a
parent with threads, which a notebook is.

Every measured process comes through here, so its start is what counts: it imports os, sys and
ctypes alone (12 ms against 8 ms for an empty Python and 28 ms with json, signal and dataclasses),
and runs as a file, isolated (``-I -S``), without any installed package.

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
    from collections.abc import Sequence

    from perflib.measure.conditions import Conditions

__all__ = ["command", "held"]

_SIGKILL, _SIGPIPE, _SIGSTOP, _SIGXFSZ = 9, 13, 19, 25  # the module signal costs 4 ms
_PR_SET_PDEATHSIG, _PR_SET_THP_DISABLE = 1, 41
_ADDR_NO_RANDOMIZE, _ASK_PERSONALITY = 0x0040000, 0xFFFFFFFF
_MEMORY_POLICIES = {"preferred": 1, "bind": 2, "interleave": 3}
_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 269}
_MOST_NODES = 1024


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
    words = [f"parent={os.getpid()}"]
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
    environment = conditions.process_environment()
    if conditions.preload:  # for the command, not for the Python that starts it
        words.append(f"preload={environment.pop('LD_PRELOAD')}")
    return _launched(words, argv), environment


def held(argv: Sequence[str]) -> list[str]:
    """How to start ``argv`` stopped, before its first instruction, until it gets a SIGCONT.

    As long as it is held it dies with the thread that started it: nobody else would let it go on.
    """
    return _launched([f"held={os.getpid()}"], argv)


def _launched(words: Sequence[str], argv: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", __file__, *words, "--", *argv]


class _ImpossibleError(Exception):
    pass


def _held(pid: str) -> None:
    _parent(pid)
    os.kill(os.getpid(), _SIGSTOP)
    _parent(pid, 0)


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
    mask = sum(1 << int(node) for node in nodes.split(",")).to_bytes(_MOST_NODES // 8, "little")
    number = _SET_MEMPOLICY.get(os.uname().machine)
    if number is not None:
        mode = ctypes.c_int(_MEMORY_POLICIES[policy])
        _libc().syscall(_word(number), mode, mask, _word(_MOST_NODES + 1))


def _huge_pages(wanted: str) -> None:
    disable = _word(wanted == "never")
    _libc().prctl(_PR_SET_THP_DISABLE, disable, _word(0), _word(0), _word(0))


_APPLY = {
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
        print(f"perflib: cannot start {argv[0]!r}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
