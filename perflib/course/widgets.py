"""A field for a guess, a question with answers, and sliders, in plain ipywidgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from perflib.course.items import Choice
from perflib.lab.markup import escape
from perflib.model.errors import UserError
from perflib.model.escape import visible

if TYPE_CHECKING:
    from perflib.course.worksheet import Checked


class Guess(widgets.VBox):
    """A field for a prediction; ``keep`` is called with the number and says what it did."""

    def __init__(
        self, name: str, unit: str, kept: float | None, keep: Callable[[str], str]
    ) -> None:
        self._name, self._unit, self._keep = name, unit, keep
        self.field = widgets.Text(
            value="" if kept is None else f"{kept:g}",
            placeholder="a number",
            layout=widgets.Layout(width="9em"),
            tooltip=f"your prediction of {name}, in {unit}",
        )
        self.field.add_class("perflib-guess")
        self.button = widgets.Button(description="Keep", button_style="primary")
        self.said = widgets.HTML("not predicted yet" if kept is None else "kept before")
        self.said.add_class("perflib-guess-said")
        self.button.on_click(self._clicked)
        label = widgets.HTML(f"<label>I predict <b>{escape(name)}</b> =</label>")
        row = [label, self.field, widgets.HTML(escape(unit)), self.button]
        super().__init__([widgets.HBox(row), self.said])
        self.add_class("perflib-predict")

    def _clicked(self, _: object = None) -> None:
        try:
            self.said.value = escape(self._keep(self.field.value.strip()))
        except UserError as error:
            self.said.value = escape(str(error))

    def __repr__(self) -> str:
        kept = f"{self.field.value} {self._unit}" if self.field.value else "none yet"
        return visible(f"prediction of {self._name}: {kept}")


class Question(widgets.VBox):
    """A question and its answers; ``chosen`` is the key of the answer that was chosen.

    ``keep`` is called with each that is chosen, ``check`` when the button is pressed.
    """

    def __init__(
        self,
        item: Choice,
        chosen: str | None,
        keep: Callable[[str], object],
        check: Callable[[str], Checked],
    ) -> None:
        self._item, self._check = item, check
        self.options = widgets.RadioButtons(
            options=[(f"{key}: {text}", key) for key, text in item.options.items()],
            value=chosen,
            layout=widgets.Layout(width="max-content", max_width="100%"),
        )
        self.options.observe(lambda change: keep(change["new"]), "value")
        self.options.add_class("perflib-options")
        self.button = widgets.Button(description="Check", button_style="primary")
        self.said = widgets.HTML("" if chosen is None else "kept before")
        self.said.add_class("perflib-said")
        self.button.on_click(self._clicked)
        super().__init__(
            [widgets.HTML(f"<p>{escape(item.question)}</p>"), self.options, self.button, self.said]
        )
        self.add_class("perflib-ask")

    @property
    def chosen(self) -> str | None:
        """The key of the answer, or ``None``."""
        key: str | None = self.options.value
        return key

    def _clicked(self, _: object = None) -> None:
        if self.chosen is None:
            self.said.value = "choose an answer first"
        else:
            self.said.value = self._check(self.chosen)._repr_html_()

    def __repr__(self) -> str:
        lines = [self._item.question]
        lines += [f"  {key}: {text}" for key, text in self._item.options.items()]
        return "\n".join(map(visible, lines))


class Slider(widgets.VBox):
    """Sliders and a table of what follows from them; without a display it shows the first state."""

    def __init__(
        self,
        name: str,
        computed: Callable[..., Mapping[str, Any]],
        controls: Mapping[str, tuple[str, list[int], int]],
    ) -> None:
        self._name, self._computed = name, computed
        self.controls = {
            key: widgets.SelectionSlider(
                options=options,
                value=first,
                description=words,
                style={"description_width": "14em"},
                layout=widgets.Layout(width="34em", max_width="100%"),
            )
            for key, (words, options, first) in controls.items()
        }
        self.shown = widgets.HTML()
        self.shown.add_class("perflib-slider")
        for control in self.controls.values():
            control.observe(self._redraw, "value")
        super().__init__([*self.controls.values(), self.shown])
        self._redraw()

    @property
    def state(self) -> dict[str, Any]:
        """What follows from the sliders as they are, as shown in the table."""
        return dict(
            self._computed(**{key: control.value for key, control in self.controls.items()})
        )

    def _redraw(self, _: object = None) -> None:
        rows = "".join(
            f'<tr><th scope="row" style="text-align: left; padding-right: 1em">{escape(key)}</th>'
            f"<td>{escape(str(value))}</td></tr>"
            for key, value in self.state.items()
        )
        self.shown.value = f"<table>{rows}</table>"

    def __repr__(self) -> str:
        given = ", ".join(f"{one.description}: {one.value}" for one in self.controls.values())
        lines = [f"{self._name} slider ({given})"]
        return "\n".join([*lines, *(f"  {key}: {value}" for key, value in self.state.items())])
