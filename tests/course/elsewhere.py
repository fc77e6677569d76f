"""A notebook's cells as on a system that is not Linux: ``python -m tests.course.elsewhere``.

Packages of others are imported first, as they are here; then what Linux alone has is hidden, and
only then perflib is imported and the cells run. Hidden are the files below /proc and /sys, every
program, functions of ``os`` and ``signal``, and modules; ``darwin`` keeps what every Unix has,
``win32`` does not. What the real systems do otherwise (their files, wheels, encodings) is not
shown by it.
"""

from __future__ import annotations

import builtins
import importlib
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

from tests.notebooks import forked

_LINUX = (
    "eventfd", "eventfd_read", "eventfd_write", "getxattr", "listxattr", "memfd_create",
    "pidfd_open", "posix_fadvise", "sched_getaffinity", "sched_getparam", "sched_getscheduler",
    "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_rr_get_interval",
    "setns", "splice", "unshare", "CPU_SET",
)  # fmt: skip
_UNIX = (
    "chown", "chroot", "fchmod", "fchown", "fork", "getegid", "geteuid", "getgid", "getgroups",
    "getloadavg", "getpgid", "getpriority", "getsid", "getuid", "initgroups", "killpg", "mkfifo",
    "nice", "openpty", "posix_fallocate", "posix_spawn", "pread", "preadv", "pwrite", "setpgid",
    "setpriority", "setsid", "statvfs", "sysconf", "uname", "wait3", "wait4", "waitid",
    "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "RTLD_NOW", "EX_USAGE", "EX_OK",
)  # fmt: skip
_UNIX_SIGNALS = (
    "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP",
    "SIGTSTP", "SIGUSR1", "SIGUSR2", "alarm", "pthread_sigmask", "setitimer", "sigwait",
)  # fmt: skip
_MODULES = {
    "darwin": {"inotify_simple"},
    "win32": {"inotify_simple", "fcntl", "grp", "pty", "pwd", "resource", "termios"},
}
_FILES = ("/proc", "/sys", "/dev/cpu", "/etc/os-release")
_CALLS = (  # of os, which take a path first
    "access", "listdir", "lstat", "open", "readlink", "scandir", "stat",
)  # fmt: skip


def hide(system: str) -> None:
    """Make this process's Python look as if it ran on that system.

    Parameters
    ----------
    system
        ``darwin`` or ``win32``.
    """
    for name in (*_LINUX, *(_UNIX if system == "win32" else ())):
        if hasattr(os, name):
            delattr(os, name)
    for name in _UNIX_SIGNALS if system == "win32" else ():
        delattr(signal, name)
    for name in _MODULES[system]:
        sys.modules[name] = None  # type: ignore[assignment] # an import of it fails
    for name in _CALLS:
        setattr(os, name, _without_files(getattr(os, name)))
    opened = _without_files(io.open)
    io.open = builtins.open = opened
    shutil.which = lambda *_given, **_named: None
    sys.addaudithook(_no_program)
    os.environ["PATH"] = ""
    for name in ("CC", "CXX", "SHELL"):
        os.environ.pop(name, None)
    sys.platform = system


def _without_files(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a path, to which Linux's files are not there."""

    def asked(path: Any = ".", *given: Any, **named: Any) -> Any:
        if isinstance(path, (str, bytes, os.PathLike)):
            whole = os.fsdecode(path)
            if any(whole == one or whole.startswith(f"{one}/") for one in _FILES):
                if call.__name__ == "access":
                    return False
                raise FileNotFoundError(2, os.strerror(2), whole)
        return call(path, *given, **named)

    return asked


def _no_program(event: str, given: tuple[Any, ...]) -> None:
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"):
        raise FileNotFoundError(2, os.strerror(2), str(given[0]) if given else event)


def main(system: str, path: Path) -> None:
    """Execute the notebook in that file, which gets its cells' outputs."""
    for name in ("ctypes.util", *forked.LIBRARIES):  # Debian has nothing of it for other systems
        importlib.import_module(name)
    assert "perflib" not in sys.modules
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    first = f"import tests.course.elsewhere as _elsewhere; _elsewhere.hide({system!r})"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(first))  # type: ignore[no-untyped-call]
    forked.run_cells(notebook)
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
