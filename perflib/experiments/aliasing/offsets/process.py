"""The worker of a sweep as its caller sees it: orders of offsets in, samples out, within a time."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from perflib.measure.conditions import Conditions, check, observe, unmet
from perflib.measure.launch import command
from perflib.model.errors import MeasurementError, UserError

__all__ = ["SweepProcess"]

_START_S = 60.0
_TAIL = 1500


class SweepProcess:
    """A process with a user's function and copies of its arrays; a context manager."""

    def __init__(
        self,
        job: Mapping[str, Any],
        arrays: Mapping[int, NDArray[Any]],
        conditions: Conditions,
    ) -> None:
        check(conditions)
        self._conditions = conditions
        self._folder = tempfile.TemporaryDirectory(prefix="perflib-")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in __exit__)
        folder = Path(self._folder.name)
        (folder / "job.json").write_text(json.dumps({**job, "arrays": list(arrays)}))
        for place, array in arrays.items():
            np.save(folder / f"{place}.npy", array)
        self._process: subprocess.Popen[bytes] | None = None
        self.unmet: list[str] = []
        self.got: dict[str, Any] = {}

    def __enter__(self) -> Self:
        argv = [
            sys.executable,
            "-m",
            f"{__package__}.worker",
            self._folder.name,
        ]
        argv, environment = command(self._conditions, argv)
        try:
            self._process = subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
            self._answer(_START_S)
            self.got = observe(self._process.pid, self._conditions.environment)
        except BaseException:
            self.__exit__()
            raise
        self.unmet = unmet(self._conditions, self.got)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._errors.close()
        self._folder.cleanup()

    def sweep(self, offsets: Sequence[int], timeout_s: float) -> list[dict[str, Any]]:
        """A sample at each offset, in that order.

        Raises
        ------
        UserError
            The function raised an exception.
        MeasurementError
            It crashed, or took too long.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died: the answer says of what
            self._process.stdin.write(json.dumps(list(offsets)).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._answer(timeout_s)
        if "raised" in answer:
            msg = f"the function raised {answer['raised']}"
            raise UserError(msg)
        samples: list[dict[str, Any]] = answer["samples"]
        return samples

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        readable = select.poll()
        readable.register(self._process.stdout, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        said = b""
        while not said.endswith(b"\n"):
            if not readable.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                msg = f"the function took more than {timeout_s:g} s for one sweep and was killed"
                raise MeasurementError(msg)
            part = self._process.stdout.read1()  # type: ignore[attr-defined]
            if not part:
                raise MeasurementError(self._death())
            said += part
        answer: dict[str, Any] = json.loads(said)
        return answer

    def _death(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        names = {number.value: number.name for number in signal.Signals}
        how = f"ended by signal {names.get(-code, -code)}" if code < 0 else f"exit status {code}"
        self._errors.seek(max(0, self._errors.seek(0, 2) - _TAIL))
        words = self._errors.read().decode(errors="replace").strip()
        said = f"; it said:\n{words}" if words else ""
        return f"the function's process {how}{said}"
