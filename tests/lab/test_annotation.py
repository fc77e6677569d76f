from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.annotation import compared, function, samples
from perflib.experiments import get
from perflib.lab.annotation import AnnotationView, annotation
from perflib.lab.theme import png
from perflib.model.errors import UserError
from perflib.model.run import Run
from tests.experiments.event_profile.profiles import samples as event_samples


def _run(**changed: Any) -> Run:
    made = event_samples(3, rounds=4, count=300).assign(object="/none/kv", **changed)
    params = get("event_profile").Params.make({}).model_dump(mode="json")
    plan = {"plan": {"cores": [0, 1], "reference": 0}}
    return Run("event_profile-1", "event_profile", params, made, plan)


def test_the_widget_sorts_and_escapes() -> None:
    generator = np.random.default_rng(5)
    found = compared(samples(generator, function(generator), 0.6, rounds=5))
    table = found.table.assign(instruction_second="<script>alert(1)</script>")
    view = AnnotationView(type(found)(**{**vars(found), "table": table}))
    body = view.children[2]
    assert "<script>" not in body.value
    assert "&lt;script&gt;" in body.value
    by_address = body.value
    view.order.value = "difference"
    assert body.value != by_address
    assert 'class="odd"' in body.value.split("</tr>")[1]
    fewer = body.value.count("<tr")
    view.whole.value = True
    assert body.value.count("<tr") >= fewer


def test_a_run_is_shown_and_drawn_by_offsets_where_its_file_is_gone() -> None:
    run = _run(offset=np.arange(len(event_samples(3, rounds=4, count=300))) % 40 * 4)
    view = annotation(run, "kv_step")
    assert view.found.function == "kv_step"
    assert view.found.comparable  # one build: offsets are enough
    assert any("only the offsets" in remark for remark in view.found.remarks)
    plots = get("event_profile").drawings(run)
    for name in ("instructions_cpu1", "modules"):
        assert png(plots[name]()).startswith(b"\x89PNG")


def test_what_cannot_be_shown_is_said() -> None:
    with pytest.raises(UserError, match="no column 'offset'"):
        annotation(_run())
    with pytest.raises(UserError, match="unknown core 'cpu7'"):
        annotation(_run(offset=4), cores=(0, 7))
