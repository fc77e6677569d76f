"""The process in which measured code runs: reads calls from one pipe, answers on another.

It is started under its conditions (``launch``) and imports next to nothing, so that it starts in
milliseconds and its own work stays out of the measurement. It serves the functions of the compiled
kernel that its arguments name or, without any, the methods of the object that comes first, pickled.
Requests and answers are lines of JSON; buffers travel as base64. Whatever the measured code prints
goes to standard error, not into an answer.
"""

from __future__ import annotations

import base64
import faulthandler
import functools
import json
import os
import sys
from typing import Any

from perflib.kernels import open_library


def _argument(ffi: Any, wanted: Any, given: Any, outputs: list[Any]) -> Any:
    """One argument of a call, converted to what the kernel declares."""
    if not isinstance(given, dict):
        return given
    if "in" in given:
        buffer = ffi.new("char[]", base64.b64decode(given["in"]))
    else:
        buffer = ffi.new("char[]", given["out_bytes"])
        outputs.append((buffer, given["out_bytes"]))
    return ffi.cast(wanted, buffer), buffer  # the buffer is kept alive by the pair


def _call(lib: Any, ffi: Any, name: str, given: list[Any]) -> dict[str, Any]:
    function = getattr(lib, name)
    wanted = ffi.typeof(function).args
    outputs: list[Any] = []
    pairs = [
        _argument(ffi, kind, argument, outputs)
        for kind, argument in zip(wanted, given, strict=True)
    ]
    arguments = [pair[0] if isinstance(pair, tuple) else pair for pair in pairs]
    result = function(*arguments)
    return {
        "result": result,
        "out": [base64.b64encode(ffi.buffer(buffer, size)[:]).decode() for buffer, size in outputs],
    }


def _method(served: Any, name: str, given: list[Any]) -> dict[str, Any]:
    return {"result": getattr(served, name)(*given), "out": []}


def main() -> None:
    """Serve calls until the other end of the pipe closes."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    if sys.version_info >= (3, 14):
        faulthandler.enable(c_stack=False)  # addresses of the interpreter would hide the message
    else:
        faulthandler.enable()
    if library_and_module := sys.argv[1:]:
        serve = functools.partial(_call, *open_library(*library_and_module))
    else:
        import pickle

        serve = functools.partial(_method, pickle.load(requests))  # noqa: S301 (from our parent)
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in requests:
        try:
            answer = serve(*json.loads(line))
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
