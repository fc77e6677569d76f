"""The tables of Firefox Profiler's processed format that threads share.

https://github.com/firefox-devtools/profiler/blob/main/src/types/profile.ts describes them; the
version is 60, the first in which threads share stacks. Later versions of the Profiler read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perflib.instruments.profile.python_frames import frame_parts
from perflib.model.escape import visible

__all__ = ["Tables", "meta"]

_VERSION = 60
_GECKO_VERSION = 32  # of the format that Firefox itself writes: what 60 was derived from
_LIBRARY = 1  # the type of a resource

_CATEGORIES = (("Other", "grey"), ("Native", "blue"), ("Python", "yellow"), ("Kernel", "orange"))
_OTHER, _NATIVE, _PYTHON, _KERNEL = range(4)


class Tables:
    """Strings, functions, frames and stacks by their numbers; each is there once.

    Parameters
    ----------
    objects
        The object of a function, where it is known.
    """

    def __init__(self, objects: Mapping[str, str] | None = None) -> None:
        self._objects = objects or {}
        self._strings: dict[str, int] = {}
        self._frames: dict[str, int] = {}
        self._libraries: dict[str, int] = {}
        self._sources: dict[str, int] = {}
        self._nodes: dict[tuple[int, int | None], int] = {}

    def string(self, text: str) -> int:
        """The number of a text."""
        return self._strings.setdefault(visible(text), len(self._strings))

    def stack(self, folded: str) -> int | None:
        """The number of a stack, the outermost frame first; None for an empty one."""
        node: int | None = None
        for frame in folded.split(";") if folded else ():
            number = self._frames.setdefault(frame, len(self._frames))
            node = self._nodes.setdefault((number, node), len(self._nodes))
        return node

    def finish(self) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The profile's ``libs`` and ``shared``; nothing may be added afterwards."""
        functions: dict[str, list[Any]] = {
            name: []
            for name in ("name", "isJS", "relevantForJS", "resource", "source", "lineNumber")
        }
        categories = []
        for frame in self._frames:
            called, file = frame_parts(frame)
            path = self._objects.get(frame, "")
            functions["name"].append(self.string(called))
            functions["resource"].append(self._library(path))
            functions["source"].append(
                self._sources.setdefault(file, len(self._sources)) if file else None
            )
            kernel = path.startswith(("[kernel", "[guest.kernel")) or path.endswith(".ko")
            categories.append(_PYTHON if file else _KERNEL if kernel else _NATIVE)
        n = len(self._frames)
        functions |= {"isJS": [False] * n, "relevantForJS": [False] * n, "lineNumber": [None] * n}
        libraries = list(self._libraries)
        names = [path.rpartition("/")[2] or path for path in libraries]
        shared = {
            "stackTable": {
                "frame": [frame for frame, _ in self._nodes],
                "prefix": [prefix for _, prefix in self._nodes],
                "length": len(self._nodes),
            },
            "frameTable": {
                "address": [-1] * n,
                "inlineDepth": [0] * n,
                "category": categories,
                "subcategory": [0] * n,
                "func": list(range(n)),
                "nativeSymbol": [None] * n,
                "innerWindowID": [0] * n,
                "line": [None] * n,
                "column": [None] * n,
                "length": n,
            },
            "funcTable": {**functions, "columnNumber": [None] * n, "length": n},
            "resourceTable": {
                "lib": list(range(len(libraries))),
                "name": [self.string(name) for name in names],
                "host": [None] * len(libraries),
                "type": [_LIBRARY] * len(libraries),
                "length": len(libraries),
            },
            "nativeSymbols": {
                **{name: [] for name in ("libIndex", "address", "name", "functionSize")},
                "length": 0,
            },
            "sources": {
                "id": [None] * len(self._sources),
                "filename": [self.string(file) for file in self._sources],
                "length": len(self._sources),
            },
            "stringArray": list(self._strings),  # the last: the others add to it
        }
        libs = [
            {
                "arch": "",
                "name": visible(name),
                "path": visible(path),
                "debugName": visible(name),
                "debugPath": visible(path),
                "breakpadId": "",
                "codeId": None,
            }
            for name, path in zip(names, libraries, strict=True)
        ]
        return libs, shared

    def _library(self, path: str) -> int:
        if path in {"", "[unknown]"}:
            return -1
        return self._libraries.setdefault(path, len(self._libraries))


def meta(
    name: str,
    *,
    interval_ms: float,
    start_ns: int,
    end_ns: int,
    markers: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The profile's ``meta``: times are milliseconds since ``start_ns``."""
    return {
        "interval": interval_ms,
        "startTime": 0,  # of the day it is not known
        "startTimeAsClockMonotonicNanosecondsSinceBoot": start_ns,
        "profilingStartTime": 0,
        "profilingEndTime": (end_ns - start_ns) / 1e6,
        "processType": 0,
        "product": visible(name),
        "importedFrom": "perflib",
        "stackwalk": 1,
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": _VERSION,
        "platform": "X11",  # of any Unix
        "symbolicated": True,
        "symbolicationNotSupported": True,
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "categories": [
            {"name": category, "color": color, "subcategories": ["Other"]}
            for category, color in _CATEGORIES
        ],
        "markerSchema": list(markers),
    }
