"""Recordings of threads for other programs; nothing heavy is imported before something is written.

`docs/exports.md` says which program opens what, and what of a recording it shows.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflib.instruments.threads.recording import Recording

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

    def write(self, recording: Recording, path: Path) -> None:
        """Write a recording whole or not at all, in pieces: memory does not grow with its length.

        Raises
        ------
        UserError
            It cannot be written there (what was there is unchanged), or the recording is damaged.
        """
        from perflib.instruments.profile.export.files import written

        with written(path) as temporary:
            importlib.import_module(self.module).write(recording, temporary)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        name: Format(text, f"perflib.instruments.threads.{module}")
        for name, module, text in (
            ("perfetto", "export_perfetto", "A gzipped trace for https://ui.perfetto.dev."),
            ("firefox", "export_firefox", "A profile for https://profiler.firefox.com."),
        )
    }
)
"""Every kind of file, by the name of its option."""
