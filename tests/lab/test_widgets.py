"""Widgets that bring a script of their own, whatever they show."""

from __future__ import annotations

import anywidget
import pytest

from perflib.lab.choice import Choice
from perflib.lab.flamegraph import FlameGraph
from perflib.lab.threads.timeline import Timeline


@pytest.mark.parametrize("widget", [Choice, FlameGraph, Timeline])
def test_it_carries_its_code_takes_texts_for_texts_and_uses_no_network(
    widget: type[anywidget.AnyWidget],
) -> None:
    code = f"{widget._esm}\n{widget._css}"
    assert "export default" in code
    assert "import " not in code
    assert "http" not in code.replace("http://www.w3.org/2000/svg", "")
    assert "innerHTML" not in code
