from __future__ import annotations

from perflib.lab.choice import Choice


def test_the_widget_carries_its_code_and_takes_texts_for_texts() -> None:
    code = f"{Choice._esm}\n{Choice._css}"
    assert "export default" in code
    assert "http" not in code
    assert "innerHTML" not in code
