"""The process in which code to mend runs: ``python -m perflib.course.fix.child REQUEST ANSWERS``.

REQUEST is a file of JSON: ``libraries`` (each a library and its module), and either ``inputs``
(words, and the number of words that come out; each is tried ``repeats`` times) or ``cpus``,
``seed``, ``seconds``, ``slice_ns`` and ``slices``. ANSWERS grows by a line of JSON for each input,
or each trial: what is there when the process dies is what it did. It is started by
``perflib.course.fix.examine``.
"""

from __future__ import annotations

import base64
import json
import os
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

from perflib.kernels import open_library

_MOST_FILE_BYTES, _MOST_BYTES = 1 << 28, 1 << 33
_MOST_CALLS = 1 << 24


def _limit() -> None:
    """What code that misbehaves may take of the machine; the parent's limits stay."""
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, _MOST_FILE_BYTES),
        (resource.RLIMIT_AS, _MOST_BYTES),
    ):
        _, hard = resource.getrlimit(what)
        wanted = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (wanted, wanted))


class _Answers:
    """The file of answers, a line at a time."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def __call__(self, answer: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(answer).encode() + b"\n")


def _tasks() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def _check(kernel: tuple[Any, Any], request: dict[str, Any], say: _Answers) -> None:
    """Each input, again and again, and then how many threads were left."""
    lib, ffi = kernel
    for words, count in request["inputs"]:
        given = ffi.new("uint64_t[]", words)
        for _ in range(request["repeats"]):
            out = ffi.new("uint64_t[]", max(count, 1))
            code = lib.fix_check(given, len(words), out, count)
            say({"code": code, "out": ffi.unpack(out, count)})
    say({"threads": _tasks()})


class _Timed:
    """One version of the code, with as many calls a sample as take a slice of time."""

    def __init__(self, kernel: tuple[Any, Any], request: dict[str, Any]) -> None:
        self._lib, self._ffi = kernel
        self._slices = request["slices"] + 1  # the first one warms up
        self._out = self._ffi.new("fix_sample[]", self._slices)
        cpu, partner = request["cpus"]
        code = self._lib.fix_prepare(request["seed"], cpu, partner)
        if code:
            msg = f"it cannot be prepared: {os.strerror(code)}"
            raise OSError(msg)
        self.calls = 1
        self._fit(request["slice_ns"])

    def take(self) -> str:
        """The samples of one trial, as base64 of their records."""
        self._time()
        size = self._ffi.sizeof("fix_sample")
        raw = bytes(self._ffi.buffer(self._out))
        return base64.b64encode(raw[size:]).decode()

    def _time(self) -> None:
        code = self._lib.fix_time(self.calls, self._slices, self._out)
        if code:
            msg = f"it cannot be timed: {os.strerror(code)}"
            raise OSError(msg)

    def _fit(self, slice_ns: int) -> None:
        for _ in range(12):
            self._time()
            times = sorted(one.sample.time_ns for one in list(self._out)[1:])
            share = slice_ns / max(times[len(times) // 2], 1)
            if 0.7 < share < 1.5 or (share < 1 and self.calls == 1):
                break
            self.calls = min(max(1, round(self.calls * min(share, 100.0))), _MOST_CALLS)


def _time(kernels: list[tuple[Any, Any]], request: dict[str, Any], say: _Answers) -> None:
    """Rounds of a trial of each version, in random order, for so many seconds."""
    versions = [_Timed(kernel, request) for kernel in kernels]
    draw = random.Random(request["seed"])
    say({"calls": [version.calls for version in versions]})
    end, round_ = time.monotonic() + request["seconds"], 0
    while round_ < 2 or time.monotonic() < end:
        for position, which in enumerate(draw.sample(range(len(versions)), len(versions))):
            taken = versions[which].take()
            say({"round": round_, "position": position, "version": which, "samples": taken})
        round_ += 1
    say({"threads": _tasks()})


def main() -> None:
    """Do what is asked; errors are answers, too."""
    request = json.loads(Path(sys.argv[1]).read_text())
    say = _Answers(sys.argv[2])
    _limit()
    try:
        kernels = [open_library(*one) for one in request["libraries"]]
        say({"threads": _tasks()})
        if "inputs" in request:
            _check(kernels[0], request, say)
        else:
            _time(kernels, request, say)
    except (OSError, MemoryError) as error:
        say({"error": str(error) or type(error).__name__})
    say({"end": True})


if __name__ == "__main__":
    main()
