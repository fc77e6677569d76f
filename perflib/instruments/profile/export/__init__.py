"""Samples for other programs; nothing heavy is imported before something is written.

`docs/exports.md` says which program opens what.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FORMATS", "Format"]


@dataclass(frozen=True)
class Format:
    """A kind of file that another program opens.

    Attributes
    ----------
    help
        What it is, and what opens it, in a sentence.
    module
        Where its ``write`` is.
    """

    help: str
    module: str

    def write(self, samples: pd.DataFrame, name: str, path: Path) -> None:
        """Write samples whole or not at all.

        Parameters
        ----------
        samples
            The table that ``perf.script.read`` makes, or a part of it; perhaps of several events.
        name
            What the other program shows as the profile's name, where it shows one.
        path
            The file; one that is there already is replaced.

        Raises
        ------
        UserError
            It cannot be written there; what was there is unchanged.
        """
        from perflib.instruments.profile.export.files import written

        with written(path) as temporary:
            importlib.import_module(self.module).write(samples, name, temporary)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        name: Format(text, f"{__name__}.{module}")
        for name, module, text in (
            ("folded", "flame", "Folded stacks of the first event, as stackcollapse-perf's."),
            ("speedscope", "speedscope_file", "A file for https://www.speedscope.app."),
            ("parquet", "parquet", "The table of samples."),
            ("pprof", "pprof", "A gzipped profile for 'go tool pprof' and what reads its format."),
            ("perfetto", "perfetto", "A trace for https://ui.perfetto.dev."),
        )
    }
)
"""Every kind of file, by the name of its option."""
