"""Names of what was stamped by address: locks and stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from perflib.instruments.threads.formats import LOCK_KINDS, Lock
from perflib.instruments.threads.preload.sampler import Looks
from perflib.instruments.threads.symbols import Symbols

__all__ = ["Naming"]

_LIBRARY_FRAMES = ("tw_thread_start", "thread_waits.so+")
_NOT_A_CALLER = re.compile(r"pthread_|std::|__gthread|_ZNK?St|_ZSt")


class Naming:
    """Locks and stacks by number, over all processes.

    Parameters
    ----------
    looks
        Whose mappings say more about a process than it wrote down itself.

    Attributes
    ----------
    stacks
        The numbers of the stacks' texts.
    """

    def __init__(self, looks: Looks) -> None:
        self._maps = looks.maps
        self._symbols: dict[tuple[int, int], Symbols] = {}
        # Process, program of it, kind and address; with the first stack that waited for it.
        self._locks: dict[tuple[int, int, int, int], tuple[int, str]] = {}
        self.stacks: dict[str, int] = {}

    def symbols(self, pid: int, generation: int, maps: str = "") -> Symbols:
        """The symbols of a program (its number) that a process runs."""
        key = pid, generation
        if key not in self._symbols:
            self._symbols[key] = Symbols.from_maps(self._maps.get(pid, ""), maps)
        return self._symbols[key]

    def lock(self, key: tuple[int, int, int, int], stack: str) -> int:
        """The number of a lock; ``stack`` is one that waits for it."""
        return self._locks.setdefault(key, (len(self._locks), stack))[0]

    def stack(self, symbols: Symbols, frames: Iterable[int], *, exact: bool) -> str:
        """The text of a stack; of a return address the call before it counts."""
        names = []
        for i, frame in enumerate(frames):
            name = symbols.name(frame if exact and i == 0 else frame - 1).replace(";", ":")
            if name.startswith(_LIBRARY_FRAMES):
                break  # what is outside of it only starts threads
            names.append(name)
        return ";".join(reversed(names))

    def number(self, stack: str) -> int:
        """The number of a stack's text."""
        return self.stacks.setdefault(stack, len(self.stacks))

    def named(self) -> tuple[list[Lock], list[int]]:
        """The locks, and which of them each number is.

        As for every backend, a lock in a static variable has the variable's name, and all of one
        kind in it are one; another is named by who waits for it.
        """
        locks: dict[tuple[Any, ...], Lock] = {}
        index: dict[tuple[Any, ...], int] = {}
        numbers = []
        for (pid, generation, code, address), (_, stack) in self._locks.items():
            kind, place = LOCK_KINDS[code], address
            found = self.symbols(pid, generation).object_at(address)
            if kind == "join":
                name = "pthread_join"
            elif found is not None:
                name, place = found[0], address - found[1]
            else:
                frames = (one for one in stack.split(";")[::-1] if not _NOT_A_CALLER.match(one))
                caller = next(frames, "")
                name = f"lock in {caller}" if caller else f"{address:#x}" if address else "futex"
            key = pid, generation, kind, place
            locks.setdefault(key, Lock(name, kind, address, pid))
            numbers.append(index.setdefault(key, len(index)))
        return list(locks.values()), numbers
