"""The definitions of the images, read: their files, their variables, their lines of shell."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

TOP = Path(__file__).parents[2]
Copies = list[tuple[str, str]]  # from, to


def instructions(text: str) -> list[tuple[str, str]]:
    """A Containerfile's instructions in order, each with what follows it."""
    lines = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    words = [line.strip().partition(" ") for line in lines if line.strip()]
    return [(name.upper(), rest.strip()) for name, _, rest in words]


def apptainer_sections(text: str) -> dict[str, str]:
    """An Apptainer definition's sections; ``""`` is its header."""
    header, *rest = re.split(r"^%(\w+)[^\n]*\n", text, flags=re.MULTILINE)
    return {"": header, **dict(zip(rest[::2], rest[1::2], strict=True))}


def jsonc(text: str) -> object:
    """JSON in which a line may be a comment, as the devcontainer's is."""
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def copy(copies: Iterable[tuple[str, str]], root: Path) -> None:
    """Do what COPY does: a file goes into a folder, a folder's content does."""
    for source, target in copies:
        place = root / target.strip("/")
        if (TOP / source).is_dir():
            shutil.copytree(TOP / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / source, place)
