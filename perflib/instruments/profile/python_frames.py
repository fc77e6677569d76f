"""Frames that CPython's perf trampolines name."""

from __future__ import annotations

_MARK = "py::"


def frame_parts(name: str) -> tuple[str, str]:
    """A frame's function and the file of its source: that of a Python function is in its name.

    >>> frame_parts("py::Fit.run:/opt/fit/fit.py"), frame_parts("memcpy")
    (('Fit.run', '/opt/fit/fit.py'), ('memcpy', ''))
    """
    if not name.startswith(_MARK):
        return name, ""
    function, _, file = name[len(_MARK) :].partition(":")
    return function, file


def python_frame(name: str) -> str:
    """A frame as a person reads it: the function and its file's own name; others as they are.

    >>> python_frame("py::Fit.run:/opt/fit/fit.py"), python_frame("memcpy")
    ('Fit.run (fit.py)', 'memcpy')
    """
    function, file = frame_parts(name)
    return f"{function} ({file.rpartition('/')[2]})" if file else function
