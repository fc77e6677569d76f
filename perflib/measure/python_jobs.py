"""Jobs that are Python programs: whether perf can name their Python functions.

CPython 3.12 and later can give each Python function a piece of machine code of its own (a perf
trampoline) and write its name to ``/tmp/perf-PID.map``: https://docs.python.org/3/howto/perf_profiling.html.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perflib.model.escape import visible

_TIMEOUT_S = 10.0
_STEPS = 8  # a script whose interpreter is a script ...
_PYTHON = re.compile(r"(python|pypy)[0-9.]*[dt]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_MIN_PYTHON = (3, 12)
_OTHERWISE = "Python functions appear as the interpreter's frames"

_QUESTION = """
import json, sys, sysconfig
names = ("CFLAGS", "PY_CFLAGS", "PY_CORE_CFLAGS", "CONFIG_ARGS")
print(json.dumps({
    "name": sys.implementation.name,
    "version": sys.version_info[:2],
    "trampolines": bool(sysconfig.get_config_var("PY_HAVE_PERF_TRAMPOLINE")),
    "flags": " ".join(str(sysconfig.get_config_var(name)) for name in names),
}))
"""


@dataclass(frozen=True)
class PerfSupport:
    """What a job needs so that perf names its Python functions.

    Attributes
    ----------
    variables
        To be added to the job's environment.
    call_graph
        How stacks must be recorded (``fp``); "" where it does not matter.
    remark
        Why Python functions will not be named, in a sentence; "" where they will, or where the job
        is no Python program.
    """

    variables: dict[str, str] = field(default_factory=dict)
    call_graph: str = ""
    remark: str = ""


def perf_support(argv: Sequence[str], environment: Mapping[str, str]) -> PerfSupport:
    """Find out whether a job is a Python program, and how perf can name its functions.

    The interpreter itself reports it, in a process of its own with a time limit. perf follows a
    stack through the interpreter by frame pointers, which few Pythons for x86-64 are built with.

    Parameters
    ----------
    argv
        The job.
    environment
        The job's.

    Examples
    --------
    >>> perf_support(["/bin/true"], {})
    PerfSupport(variables={}, call_graph='', remark='')
    """
    found = _interpreter(list(argv), environment)
    if found is None:
        return PerfSupport()
    program, options = found
    called = visible(program)
    try:
        answer = _asked(program, environment)
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, KeyError) as error:
        why = (
            f"exit status {error.returncode}"
            if isinstance(error, subprocess.CalledProcessError)
            else type(error).__name__
        )
        return PerfSupport(remark=f"{called} did not say which Python it is ({why}): {_OTHERWISE}")
    name, version, trampolines, frame_pointers = answer
    if name != "cpython":
        return PerfSupport(remark=f"{called} is {visible(name)}, not CPython: {_OTHERWISE}")
    python = f"Python {version[0]}.{version[1]}"
    if version < _MIN_PYTHON:
        return PerfSupport(remark=f"{python} has no perf trampolines (3.12 has): {_OTHERWISE}")
    if not trampolines:
        return PerfSupport(remark=f"{called} was built without perf trampolines: {_OTHERWISE}")
    if _ignores_environment(options):
        remark = (
            f"{python} ignores its variables with -I or -E: start it with -X perf as well, "
            f"or {_OTHERWISE}"
        )
        return PerfSupport(remark=remark)
    if frame_pointers:
        return PerfSupport({"PYTHONPERFSUPPORT": "1"}, "fp")
    remark = (
        f"{called} ({python}) was built without frame pointers, by which perf would follow the "
        f"stack through it: {_OTHERWISE}"
    )
    return PerfSupport(remark=remark)


def _interpreter(argv: list[str], environment: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """The Python that a command starts, and what follows it; None if it starts none.

    What ``env`` starts is followed, and what a script names in its first line.
    """
    for _ in range(_STEPS):
        found = shutil.which(argv[0], path=environment.get("PATH", os.defpath)) if argv else None
        if found is None:
            return None
        name = Path(found).name
        if _PYTHON.fullmatch(name):
            return found, argv[1:]
        if name == "env":
            argv = _after_env(argv[1:])
        elif line := _first_line(found):
            argv = [*line, *argv[1:]]
        else:
            return None
    return None


def _first_line(program: str) -> list[str]:
    """The command in a script's first line, and the script; empty for what is no script."""
    try:
        with Path(program).open("rb") as file:
            begin = file.read(4096)
    except OSError:
        return []
    if not begin.startswith(b"#!"):
        return []
    line = os.fsdecode(begin[2:].partition(b"\n")[0]).strip()
    parts = line.split(maxsplit=1)  # the kernel takes the rest as one argument
    return [*parts, program] if parts else []


def _after_env(argv: list[str]) -> list[str]:
    """The command that ``env`` starts: options and variables are left out."""
    while argv:
        first, *rest = argv
        if first.startswith("-S"):  # as in a script's first line
            argv = [*first[2:].split(), *rest]
        elif first in {"-u", "--unset", "-C", "--chdir"}:
            argv = rest[1:]
        elif first.startswith("-") or _ASSIGNMENT.match(first):
            argv = rest
        else:
            break
    return argv


def _ignores_environment(options: list[str]) -> bool:
    """Whether Python is started with -E or -I, before the script, -c or -m."""
    following = iter(options)
    for option in following:
        if not option.startswith("-") or option in {"-", "--"}:
            return False
        if option in _WITH_VALUE:
            next(following, None)
        elif not option.startswith("--"):
            letters = re.split("[cmWX]", option[1:], maxsplit=1)
            if set("EI") & set(letters[0]):
                return True
            if "c" in option[1:] or "m" in option[1:]:
                return False
    return False


def _asked(program: str, environment: Mapping[str, str]) -> tuple[str, tuple[int, int], bool, bool]:
    """Name, version, whether it has trampolines, whether perf can follow its stack."""
    done = subprocess.run(
        [program, "-I", "-S", "-c", _QUESTION],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    answer = json.loads(done.stdout)
    major, minor = answer["version"]
    # gcc leaves frame pointers out on x86-64 by default; on aarch64 it keeps them.
    kept = "-fno-omit-frame-pointer" in answer["flags"] or platform.machine() == "aarch64"
    return str(answer["name"]), (int(major), int(minor)), bool(answer["trampolines"]), kept
