"""What a build makes: the manual pages, from the commands' own help."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["ManualPages"]


class ManualPages(BuildHookInterface[Any]):
    """Puts share/man/man1 into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages into a folder of the build's own, and name them to the wheel."""
        del version
        sys.path.insert(0, self.root)
        try:
            from perflib.cli.man import write
        finally:
            sys.path.remove(self.root)
        self._folder = tempfile.TemporaryDirectory()
        for path in write(Path(self._folder.name), self.metadata.version):
            build_data["shared_data"][str(path)] = f"share/man/man1/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the folder."""
        del version, build_data, artifact_path
        self._folder.cleanup()
