from __future__ import annotations

import numpy as np

from perflib.framework.plots import core_style, core_styles


def test_cores_of_one_machine_look_unlike() -> None:
    looks = [core_style(cpu) for cpu in range(64)]
    assert len(set(looks)) == 64
    assert core_style(3) == core_style(np.int64(3))  # type: ignore[arg-type]
    styles = core_styles([8, 1])
    assert styles["palette"] == {8: core_style(8)[0], 1: core_style(1)[0]}
    assert styles["markers"] == {8: core_style(8)[1], 1: core_style(1)[1]}
