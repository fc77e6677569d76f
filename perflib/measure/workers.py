"""The workers of one measurement: one for each set of conditions, and what they got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Self

from perflib.conditions import Conditions
from perflib.kernels import Build
from perflib.measure.process import Worker

__all__ = ["Workers"]


class Workers:
    """A kernel's worker under each of several conditions; started at once, ended together."""

    def __init__(self, build: Build, conditions: Sequence[Conditions]) -> None:
        self._build = build
        self._workers = [Worker(build, wanted) for wanted in conditions]

    def __getitem__(self, arm: int) -> Worker:
        return self._workers[arm]

    def __enter__(self) -> Self:
        try:
            for worker in self._workers:
                worker.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()

    def provenance(self) -> dict[str, Any]:
        """The kernel, and the conditions asked for and got, for a run's provenance."""
        return {
            "kernel": self._build.provenance,
            "conditions": [
                {"asked": asdict(worker.conditions), "got": worker.got, "unmet": worker.unmet}
                for worker in self._workers
            ],
        }

    @property
    def unmet(self) -> list[str]:
        """A sentence for each condition that is not in force, each once."""
        return list(dict.fromkeys(text for worker in self._workers for text in worker.unmet))
