"""What takes long is made before the pages: in two processes, and again only where it changed.

The key of everything holds the content of perflib and its C: a change of code makes it all anew,
because any figure may depend on it.
"""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "content_key", "folder", "in_two_processes"]

ROOT = Path(__file__).parents[2]
_SUFFIXES = {".c", ".css", ".csv", ".h", ".inc", ".j2", ".js", ".parquet", ".py", ".toml"}
_PROCESSES = 2


def folder() -> Path:
    """Where it is kept: in ``build`` of the checkout, which is not in git."""
    return Path(os.environ.get("PERFLIB_SITE_CACHE", ROOT / "build" / "site-cache"))


@functools.cache
def _key_of_code() -> bytes:
    key = hashlib.sha256()
    for top in ("perflib", "kernels_c"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in _SUFFIXES and path.is_file():
                key.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return key.digest()


def content_key(*parts: bytes | str) -> str:
    """A name for what is made of some content by this perflib."""
    key = hashlib.sha256(_key_of_code())
    for part in parts:
        key.update(b"\0" + (part.encode() if isinstance(part, str) else part))
    return key.hexdigest()[:20]


def in_two_processes(work: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> list[Any]:
    """``work`` of each task's arguments, in the order of the tasks; what it raises is raised.

    Every tenth that is done is said.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool:
        started = [pool.submit(work, *task) for task in tasks]
        for done, _ in enumerate(as_completed(started), 1):
            if done % 10 == 0 or done == len(started):
                print(f"{work.__name__}: {done} of {len(started)}", file=sys.stderr, flush=True)
        return [one.result() for one in started]
