"""A worker process as its user sees it: calls with a time limit, and what went wrong in words."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perflib.kernels import Build
from perflib.machine.hardware.cgroup import limits
from perflib.measure.conditions import Conditions, check, observe, violated
from perflib.measure.launch import command
from perflib.model.errors import MeasurementError

_START_S = 60.0


class WorkerError(MeasurementError):
    """What was called crashed, hung, or its worker was killed: that call is lost, nothing else."""


class Out:
    """An output argument: an array of ``count`` items that the kernel fills."""

    def __init__(self, dtype: np.dtype[Any] | str, count: int) -> None:
        self.dtype = np.dtype(dtype)
        self.count = count


@dataclass(frozen=True)
class Served:
    """A Python object whose methods a worker calls, with what JSON holds as arguments and result.

    Parameters
    ----------
    name
        What errors call it.
    object
        The worker has a copy, by pickle.
    """

    name: str
    object: Any


Argument = float | Out | NDArray[Any] | Sequence[float]


class Worker:
    """One kernel, or one object, in one process under one set of conditions.

    After a crash or a hang the next call starts the process anew. It must be called from one
    thread, the one that made it: the process ends with that thread.

    Parameters
    ----------
    target
        The compiled kernel, or the object.
    conditions
        What the process is to have; ``obtained`` and ``violated`` say what it has.
    """

    def __init__(self, target: Build | Served, conditions: Conditions) -> None:
        check(conditions)
        self.target: Any = target  # which of the two it is, whoever made the worker knows
        self.conditions = conditions
        self.obtained: dict[str, Any] = {}
        self.violated: list[str] = []
        self._named = f"{'kernel' if isinstance(target, Build) else 'function'} {target.name!r}"
        self._place = "any CPU" if conditions.cpu is None else f"CPU {conditions.cpu}"
        self._process: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[Any, ...] = ()  # requests, answers, standard error
        self._pending = b""
        self._begun: deque[tuple[str, list[Out]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process, if there is none, and read its conditions back."""
        if self._process is not None:
            return
        argv = [sys.executable, *_without_folder(), "-m", "perflib.measure.worker"]
        kernel = isinstance(self.target, Build)
        if kernel:
            argv += [str(self.target.library), str(self.target.module)]
        argv, environment = command(self.conditions, argv)
        if self.conditions.environment_bytes is None:  # else its size is what is measured
            environment.update(_cpu_stat())
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the pipes)
        self._process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            bufsize=0,
        )  # fmt: skip
        self._pipes = self._process.stdin, self._process.stdout, errors
        self._pending = b""
        try:
            if not kernel:
                self._send(pickle.dumps(self.target.object))
            self._answer(_START_S, "start")
            self.obtained = observe(self._process.pid, self.conditions.environment)
        except BaseException:
            self.kill()
            raise
        self.violated = violated(self.conditions, self.obtained)

    def call(
        self, function: str, *arguments: Argument, timeout_s: float
    ) -> tuple[Any, list[NDArray[Any]]]:
        """Call a kernel's function, or an object's method, in the worker.

        Arrays are handed over as pointers to a copy, ``Out`` arguments come back filled.

        Returns
        -------
        The function's result, and the outputs in order.

        Raises
        ------
        WorkerError
            It crashed, was killed, or took longer than ``timeout_s``; the worker is gone and the
            next call starts another.
        """
        assert not self._begun, "an answer is still to come: end() what was begun"
        self.begin(function, *arguments)
        return self.end(timeout_s=timeout_s)

    def begin(self, function: str, *arguments: Argument) -> None:
        """Begin a call and do not wait for it, so that several workers run at the same time.

        Several calls may be begun, if they are few and small enough for a pipe (64 KiB); the worker
        makes one after the other, and each takes one ``end``.

        Raises
        ------
        WorkerError
            The process cannot be started.
        """
        self.start()
        outs = [argument for argument in arguments if isinstance(argument, Out)]
        request = [function, [_encode(argument) for argument in arguments]]
        try:
            self._send(json.dumps(request).encode() + b"\n")
        except BaseException:
            self.kill()
            raise
        self._begun.append((function, outs))

    def end(self, *, timeout_s: float) -> tuple[Any, list[NDArray[Any]]]:
        """Wait for the oldest call that was begun: what ``call`` returns and raises.

        If the worker dies, it takes with it all that was begun.
        """
        if not self._begun:
            msg = f"{self._named}: no call was begun, or its worker is gone"
            raise WorkerError(msg)
        function, outs = self._begun.popleft()
        try:
            answer = self._answer(timeout_s, function)
        except BaseException:  # Ctrl-C: the late answer must not be taken for the next call's
            self.kill()
            raise
        if "error" in answer:
            msg = f"{self._named}, {function}(): {answer['error']}"
            raise WorkerError(msg)
        arrays = [
            np.frombuffer(base64.b64decode(text), dtype=out.dtype)
            for out, text in zip(outs, answer["out"], strict=True)
        ]
        return answer["result"], arrays

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        with contextlib.suppress(BrokenPipeError):  # it died: the answer says of what
            while left:
                left = left[self._pipes[0].write(left) :]

    def _answer(self, timeout_s: float, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        readable = select.poll()  # select() takes no descriptor above 1023
        readable.register(self._pipes[1], select.POLLIN)
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if not readable.poll(max(0.0, 1000 * left)):
                self.kill()
                msg = (
                    f"{self._named}, {what}: no answer within {timeout_s:g} s on {self._place}; "
                    "its worker was killed"
                )
                raise WorkerError(msg)
            chunk = self._pipes[1].read(1 << 20)
            if not chunk:
                raise WorkerError(self._death(what))
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _death(self, what: str) -> str:
        """Why the worker is gone; clears it away."""
        assert self._process is not None
        code = self._process.wait()
        names = {number.value: number.name for number in signal.Signals}  # not of real-time ones
        how = f"ended by signal {names.get(-code, -code)}" if code < 0 else f"exit status {code}"
        errors = self._pipes[2]
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2000))
        words = errors.read().decode(errors="replace").strip()
        if words.startswith("Traceback") or "\nTraceback" in words:  # its last line says what
            words = words.splitlines()[-1]
        self._forget()
        said = f"; it said:\n{words}" if words else ""
        return f"{self._named}, {what}, on {self._place}: worker {how}{said}"

    def _forget(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._process = None
        self._begun.clear()

    def kill(self) -> None:
        """End the process, if there is one, whatever it is doing, and release what it held."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()


def _without_folder() -> list[str]:
    """Python's option by which the worker takes no module from a folder that this process does not.

    Anybody may have put a ``perflib.py`` into the current folder.
    """
    with contextlib.suppress(FileNotFoundError):  # it was removed
        if {"", str(Path.cwd())} & set(sys.path):
            return []
    return ["-P"]


def _cpu_stat(root: Path = Path("/")) -> dict[str, str]:
    """The variable by which a bracketed kernel (bracket.h) finds how long a quota stopped it.

    Empty where no quota is in force, or where its group keeps no account.
    """
    quota = limits(root).quota_path
    stat = None if quota is None else root / quota.lstrip("/")
    stat = None if stat is None else stat.with_name("cpu.stat")
    return {} if stat is None or not stat.is_file() else {"PERFLIB_CPU_STAT": str(stat)}


def _encode(argument: Argument) -> Any:
    if isinstance(argument, Out):
        return {"out_bytes": argument.dtype.itemsize * argument.count}
    if isinstance(argument, np.ndarray):
        return {"in": base64.b64encode(argument.tobytes()).decode()}
    return argument
