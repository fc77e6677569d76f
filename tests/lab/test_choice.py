from __future__ import annotations

import json

from perflib.lab.choice import Choice


def test_other_rows_come_with_their_choice() -> None:
    choice = Choice(many=True)
    choice.chosen = [5]
    choice.show("Fruit", ["name", "weight"], [["apple", "1 g"]], prose=[0], chosen=[0])
    assert choice.chosen == [0]
    choice.show("Fruit", ["name", "weight"], [["pear", "2 g"]])
    assert choice.chosen == []
    assert choice.data["rows"] == [["pear", "2 g"]]
    json.dumps(choice.get_state()["data"])


def test_the_widget_carries_its_code_and_takes_texts_for_texts() -> None:
    code = f"{Choice._esm}\n{Choice._css}"
    assert "export default" in code
    assert "http" not in code
    assert "innerHTML" not in code
