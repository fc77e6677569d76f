from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.patches import Rectangle

from perflib.instruments.threads.concurrency import concurrency, effective_concurrency, serial_parts
from perflib.instruments.threads.formats import Selection, State
from perflib.instruments.threads.recording import Recording
from perflib.lab.theme import png
from perflib.lab.threads.figures import concurrency_figure, timeline_figure
from perflib.model.errors import UserError
from tests.instruments.threads.made import made_recording, recording_of


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return made_recording(tmp_path, 5, 0.2, cpus=2)


def test_of_many_threads_those_with_the_most_work_are_drawn(tmp_path: Path) -> None:
    threads = [[(0, 100 + row, State.RUNNING)] for row in range(60)]
    figure = timeline_figure(recording_of(tmp_path, threads))
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert names == [f"event-{row}" for row in range(20, 60)]
    words = "40 of 60 threads, those with the most CPU time"
    assert figure.axes[0].get_xlabel() == words


def test_how_many_at_once(recording: Recording) -> None:
    figure = concurrency_figure(recording)
    above, below = figure.axes
    at_once = concurrency(recording)
    heights = [bar.get_height() for bar in above.patches if isinstance(bar, Rectangle)]
    assert heights == pytest.approx(list(100 * at_once / at_once.sum()))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["cores: 2", f"effective concurrency: {effective_concurrency(recording):.2f}"]
    legend = below.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    serial = serial_parts(recording)
    assert f"serial begin: {1e3 * serial.start_s:.1f} ms" in words
    assert f"serial end: {1e3 * serial.end_s:.1f} ms" in words
    assert png(figure).startswith(b"\x89PNG")


@pytest.mark.parametrize("draw", [timeline_figure, concurrency_figure])
def test_bad_input_is_a_sentence(recording: Recording, draw: Any) -> None:
    with pytest.raises(UserError, match="no time from"):
        draw(recording, Selection(5, 5))
    with pytest.raises(UserError, match="no thread 99"):
        draw(recording, Selection(rows=[99]))
