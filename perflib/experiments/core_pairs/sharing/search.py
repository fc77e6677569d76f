"""Who is tried in a round: pairs in any case, and those that random halvings point at.

Half of the other CPUs are busy while the rest pause, and the other way round. A thread of the
listener's core is in one half, and is felt; equally many are busy at any time, so the clock stays.
With a few halvings more than log2 of their number, one CPU has been in the felt half each time: it
is tried alone from then on, and never forgotten, for hosts move virtual CPUs.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from perflib.experiments.core_pairs.sharing.table import Pair, candidates, pair_of
from perflib.machine.cpulist import parse_cpus

_RECENT = 16  # halvings that count: a CPU may have moved since
_SHOWN = 3  # trials of a pair whose median says whether it shares its core


class Search:
    """Decides from the trials of earlier rounds, so that a resumed run decides the same again.

    Parameters
    ----------
    trials
        All that were taken, as the journal has them.
    cores, pairs
        The CPUs, and the pairs that are tried in each round.
    halve
        Whether there are halvings.
    threshold
        From which log ratio on something is shared.
    """

    def __init__(
        self,
        trials: Sequence[dict[str, Any]],
        cores: Sequence[int],
        pairs: Iterable[Pair],
        *,
        halve: bool,
        threshold: float,
    ) -> None:
        self._trials, self._seen = trials, 0
        self._cores, self._fixed = cores, set(pairs)
        self._halve, self._threshold = halve, threshold
        self._halvings: defaultdict[int, deque[tuple[list[int], list[int], float]]] = defaultdict(
            lambda: deque(maxlen=_RECENT)
        )
        self._shown: defaultdict[Pair, deque[float]] = defaultdict(lambda: deque(maxlen=_SHOWN))
        self._kept: set[Pair] = set()
        self._round, self._pairs = -1, set[Pair]()

    def halves(self, round_: int, listener: int) -> bool:
        """Whether the listener is tried with halves of all others: it has no sibling so far."""
        self._advance(round_)
        return self._halve and listener in self.without(self._cores)

    def partners(self, round_: int, listener: int) -> list[int]:
        """Whom the listener is tried with alone: of each pair the two take turns."""
        self._advance(round_)
        return sorted(
            b if listener == a else a
            for a, b in self._pairs
            if listener == (a, b)[round_ % 2]
        )  # fmt: skip

    def without(self, cpus: Iterable[int]) -> list[int]:
        """Of these CPUs those that share their core with none, as the last trials have it."""
        taken = {cpu for pair in self._shown if self._shares(pair) for cpu in pair}
        return [cpu for cpu in cpus if cpu not in taken]

    def _shares(self, pair: Pair) -> bool:
        last = self._shown[pair]
        return len(last) == _SHOWN and float(np.median(last)) > self._threshold

    def _advance(self, round_: int) -> None:
        if round_ == self._round:
            return
        self._round = round_
        while self._seen < len(self._trials) and self._trials[self._seen]["round"] < round_:
            self._note(self._trials[self._seen].get("columns", {}))
            self._seen += 1
        self._kept |= {pair for pair in list(self._shown) if self._shares(pair)}
        self._pairs = self._fixed | self._kept
        for listener in self.without(self._cores) if self._halve else ():
            self._pairs |= {pair_of(listener, one) for one in self._candidates(listener)}

    def _note(self, columns: dict[str, list[Any]]) -> None:
        for number, resource in enumerate(columns.get("resource", ())):
            ratio = columns["ratio"][number]
            if resource != "ports" or not columns["ok"][number]:
                continue
            listener, rest = columns["listener_cpu"][number], columns["else_cpus"][number]
            busy = parse_cpus(columns["busy_cpus"][number])
            if rest:
                self._halvings[listener].append((busy, parse_cpus(rest), math.log(ratio)))
            else:
                self._shown[pair_of(listener, busy[0])].append(math.log(ratio))

    def _candidates(self, listener: int) -> list[int]:
        others = [cpu for cpu in self._cores if cpu != listener]
        made = self._halvings[listener]
        signs = [[(one in busy) - (one in rest) for one in others] for busy, rest, _ in made]
        logs = np.array([one[2] for one in made])
        return candidates(np.array(signs, dtype=np.float64), logs, others, self._threshold)
