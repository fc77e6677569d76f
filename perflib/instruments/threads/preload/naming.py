"""Names of what was stamped by address: locks and stacks."""

from __future__ import annotations

from collections.abc import Iterable

from perflib.instruments.threads.formats import Lock
from perflib.instruments.threads.lock_names import Locks
from perflib.instruments.threads.preload.files import ProcessFile
from perflib.instruments.threads.preload.sampler import Sampled
from perflib.instruments.threads.symbols import Symbols

_LIBRARY_FRAMES = ("tw_thread_start", "thread_waits.so+")


class Naming:
    """Locks and stacks by number, over all processes.

    Parameters
    ----------
    sampled, processes
        Whose mappings add to those that each process wrote down itself.

    Attributes
    ----------
    stacks
        The numbers of the stacks' texts.
    """

    def __init__(self, sampled: Sampled, processes: Iterable[ProcessFile]) -> None:
        self._maps = sampled.maps
        self._own = {(one.pid, one.generation): one.maps for one in processes}
        self._symbols: dict[tuple[int, int], Symbols] = {}
        self._locks = Locks()
        self._numbers: dict[tuple[int, int, str, int], int] = {}
        self.stacks: dict[str, int] = {}

    @property
    def locks(self) -> list[Lock]:
        """The locks, by their numbers."""
        return self._locks.locks

    def symbols(self, pid: int, generation: int) -> Symbols:
        """The symbols of a program (its number) that a process runs."""
        key = pid, generation
        if key not in self._symbols:
            self._symbols[key] = Symbols.from_maps(self._maps.get(pid, ""), self._own.get(key, ""))
        return self._symbols[key]

    def lock(self, pid: int, generation: int, kind: str, address: int, stack: str = "") -> int:
        """The number of a lock; ``stack`` is one that waits for it."""
        key = pid, generation, kind, address
        if key not in self._numbers:
            lock = Lock("", kind, address, pid)
            symbols = self.symbols(pid, generation)
            self._numbers[key] = self._locks.number(symbols, lock, stack, program=generation)
        return self._numbers[key]

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
