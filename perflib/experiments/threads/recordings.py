"""The recordings that a run leaves next to its file: the last one of each version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perflib.framework import recordings as recorded_runs
from perflib.instruments.threads.recording import Recording
from perflib.model.run import Run
from perflib.store.run_files import runs_dir


def kept(run: Run) -> dict[str, Path]:
    """The folder of each version's recording, as far as it is still on this machine."""
    note = run.provenance.get("recording")
    runs = recorded_runs.folder_of(note["machine"]) if note else runs_dir()
    folder = runs / f"{run.id}.recordings"
    names: Mapping[str, str] = run.provenance.get("recordings", {})
    return {version: folder / name for version, name in names.items() if (folder / name).is_dir()}


def recordings(run: Run) -> dict[str, Recording]:
    """The last recording of each version, as far as they are still on this machine.

    Raises
    ------
    UserError
        One is damaged.
    """
    return {version: Recording.open(folder) for version, folder in kept(run).items()}
