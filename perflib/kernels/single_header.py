"""A header of ours as one file without dependencies, for other people's programs."""

from __future__ import annotations

import re
from pathlib import Path

from perflib.kernels.records import INCLUDE
from perflib.store import paths


def single_header(name: str = "bracket_samples.h") -> str:
    """The text of a header in ``kernels_c/common``, each header of ours in place of its include."""
    folder = paths.kernels_dir() / "common"
    done: set[Path] = set()

    def inlined(path: Path) -> str:
        done.add(path)

        def text(found: re.Match[str]) -> str:
            header = folder / found[1]
            return "" if header in done else inlined(header).rstrip("\n")

        return INCLUDE.sub(text, path.read_text(encoding="utf-8"))

    return inlined(folder / name)
