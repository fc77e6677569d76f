"""``perflib threads``: its options as parameters of threads, and what it shows of a recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perflib.experiments import get
from perflib.instruments.joblog.jobrun import job_argv
from perflib.instruments.threads import record as recording_module
from perflib.model.run import Run
from perflib.store.run_files import save, saved_path
from tests.cli.calling import call, would_measure
from tests.experiments.threads.thread_samples import samples
from tests.instruments.threads.made import made_recording

THREADS = get("threads")
RUN = "threads-20261124-000000-made-abcdefgh"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What would be measured."""

    def chosen(backend: str | None, *, running: bool) -> str:
        return backend if backend not in (None, "auto") else "states" if running else "preload"

    monkeypatch.setattr(recording_module, "chosen", chosen)
    return would_measure("threads", monkeypatch)


def test_a_command_is_recorded_as_it_is_typed(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["python3", "-c", "print('{a}')", "b c", "--for", "$HOME"]
    assert call("threads", "record", "--backend", "perf", "--for", "500ms", "--", *words) == 0
    assert job_argv(given["job_command"], first=0, events=1, seed=1) == words
    assert (given["job"], given["backend"], given["duration_s"]) == ("command", "perf", 0.5)
    assert "perf records the scheduler" in capsys.readouterr().err


@pytest.fixture
def saved() -> str:
    """A run with two recordings, one thread of which has a hostile name."""
    names = {"Initial": "Initial", "Final": "Final"}
    params = THREADS.params({}).model_dump(mode="json")
    save(Run(RUN, "threads", params, samples(rounds=2), {"recordings": names}))
    for seed, name in enumerate(names):
        made_recording(
            saved_path(RUN).with_suffix(".recordings") / name,
            threads=3, seconds=0.2, seed=seed, names=["job", "a\x1b[31m", "b"],
        )  # fmt: skip
    return RUN


def test_a_recording_is_shown(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("threads", "show", saved, "--version", "Initial") == 0
    out = capsys.readouterr().out
    for title in ("use of the cores", "states", "locks", "critical path by function"):
        assert title in out
    assert "output_module" in out
    assert "\x1b" not in out
    assert call("threads", "show", saved, "--json") == 0
    captured = capsys.readouterr()
    tables = json.loads(captured.out)
    shares = [row["share_percent"] for row in tables["critical path by thread"]]
    assert sum(shares) == pytest.approx(100)
    assert "the recording of Final" in captured.err


def test_a_recording_is_exported_and_becomes_a_page(
    saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / name for name in ("perfetto", "page.html")}
    trace = f"--perfetto={files['perfetto']}"
    assert call("threads", "export", saved, "--version", "Final", trace) == 0
    assert call("threads", "html", saved, str(files["page.html"])) == 0
    assert all(file.stat().st_size > 100 for file in files.values())
    assert call("threads", "export", saved) == 2
    assert "--perfetto" in capsys.readouterr().err
