"""Reading the kernel's small text files, where a missing one is an answer and not an error."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_LARGEST_BYTES = 1 << 20


def text(path: Path | str) -> str | None:
    """What the file says, stripped; ``None`` where it is missing or may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):  # a name may have been read from another of them
        return None
    try:
        pieces = []
        while piece := os.read(descriptor, _LARGEST_BYTES):
            pieces.append(piece)
    except OSError:  # sysfs answers some reads with an error (EINVAL, ENODATA)
        return None
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode(errors="replace").strip()


def integer(path: Path | str) -> int | None:
    """The file's one decimal integer; ``None`` where it is missing or says something else."""
    try:
        return int(text(path) or "")
    except ValueError:
        return None


def whole(word: str) -> int | None:
    """A count as the kernel writes it, of 64 bits; ``None`` for any other word."""
    number = int(word) if word.isascii() and word.isdecimal() and len(word) <= 20 else None
    return number if number is not None and number < 1 << 64 else None


def fields(path: Path) -> dict[str, str]:
    """The first ``name : value`` line of each name, as in /proc/cpuinfo or /proc/self/status."""
    found: dict[str, str] = {}
    for line in (text(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def assignments(path: Path) -> dict[str, str]:
    """The ``NAME=value`` lines of a file such as /etc/os-release, without quotation marks."""
    lines = (line.partition("=") for line in (text(path) or "").splitlines())
    return {name: value.strip("\"'") for name, equals, value in lines if equals}


def kib_of(path: Path, name: str) -> int | None:
    """Bytes of a ``name: 1234 kB`` line, as /proc/meminfo has them; ``None``: there is none."""
    words = fields(path).get(name, "").split()
    kib = whole(words[0]) if words else None
    return kib * 1024 if kib is not None else None


def mounts(root: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Each mount of this process: what the kernel says of the mount, and of its file system.

    A space is a separator: the kernel writes those of a name as an octal escape, decoded here.
    """
    for line in (text(root / "proc/self/mountinfo") or "").split("\n"):
        before, _, after = line.partition(" - ")
        mount, system = (
            [re.sub(r"\\([0-3][0-7]{2})", _escaped, word) for word in part.split(" ")]
            for part in (before, after)
        )
        if len(mount) > 4 and len(system) > 1:
            yield mount, system


def _escaped(octal: re.Match[str]) -> str:
    return chr(int(octal.group(1), 8))


def number_of(path: Path) -> int:
    """The number at the end of a name (``node12`` -> 12), to sort by."""
    digits = re.search(r"(\d+)$", path.name)
    return int(digits.group(1)) if digits else -1
