"""The fields of a form, made from an experiment's documented parameters and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from perflib.lab.markup import escape

_FIRST = ("cores", "budget_s", "precision_percent")  # every experiment has them; asked for most
_TYPES = {"integer", "number", "text", "true or false", "none", "NAME=VALUE,..."}
_WIDE = widgets.Layout(width="15em")
_NOTHING = "none"
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


class Fields:
    """One field a parameter, with its unit, its help and its bounds next to it.

    Parameters
    ----------
    documented
        The parameters as ``Experiment.documentation()`` has them.
    common
        Names that all experiments share; they come last, folded away, but for the first few.
    changed
        Called whenever the user changes a field.
    """

    def __init__(
        self,
        documented: Sequence[Mapping[str, Any]],
        common: set[str],
        changed: Callable[[], None],
    ) -> None:
        self._documented = {parameter["name"]: parameter for parameter in documented}
        self._changed = changed
        self._silent = False
        self.widgets = {name: _widget(parameter) for name, parameter in self._documented.items()}
        for field in self.widgets.values():
            field.observe(self._on_change, "value")
        folded = [name for name in self.widgets if name in common and name not in _FIRST]
        own = [name for name in self.widgets if name not in common]
        accordion = widgets.Accordion(
            [self._grid(folded)], titles=("conditions of the measurement",)
        )
        self.box = widgets.VBox([self._grid([*_FIRST, *own]), accordion])

    def _on_change(self, _: object) -> None:
        if not self._silent:
            self._changed()

    def _grid(self, names: Sequence[str]) -> widgets.GridBox:
        cells: list[widgets.Widget] = []
        for name in names:
            parameter = self._documented[name]
            cells += [
                widgets.HTML(f"<b>{escape(name)}</b>"),
                self.widgets[name],
                widgets.HTML(escape(parameter["unit"])),
                widgets.HTML(f'<span class="perflib-help">{escape(_help(parameter))}</span>'),
            ]
        return widgets.GridBox(
            cells,
            layout=widgets.Layout(
                grid_template_columns="max-content max-content max-content minmax(16em, 1fr)",
                grid_gap="0 12px",
                align_items="center",
            ),
        )

    def given(self) -> dict[str, Any]:
        """What the fields say, to be validated; a field left at its default is not given."""
        found = {}
        for name, parameter in self._documented.items():
            value = self.widgets[name].value
            if isinstance(value, str):
                value = value.strip()
                if value == _text(parameter["default"]):
                    continue
                if value.lower() == _NOTHING and "none" in parameter["type"]:
                    value = None
            if value != parameter["default"]:
                found[name] = value
        return found

    def fill(self, values: Mapping[str, Any]) -> None:
        """Show these values, and the defaults of all others."""
        self._silent = True
        for name, parameter in self._documented.items():
            value = values.get(name, parameter["default"])
            widget = self.widgets[name]
            widget.value = _text(value) if isinstance(widget, widgets.Text) else value
        self._silent = False
        self._changed()

    def enable(self, *, enabled: bool) -> None:
        """Let the fields be changed, or not."""
        for widget in self.widgets.values():
            widget.disabled = not enabled


def _text(value: Any) -> str:
    if value is None:
        return _NOTHING
    if isinstance(value, dict):
        return ",".join(f"{name}={setting}" for name, setting in value.items())
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _help(parameter: Mapping[str, Any]) -> str:
    bounds = " and ".join(
        f"{_SIGNS[sign]} {bound:.6g}" for sign, bound in parameter["bounds"].items()
    )
    return f"{parameter['help']} ({bounds})" if bounds else str(parameter["help"])


def _widget(parameter: Mapping[str, Any]) -> widgets.ValueWidget:
    """Numbers are typed as text: a wrong one is answered with a sentence, not silently changed."""
    kinds = parameter["type"].split(" | ")
    tooltip = f"{parameter['name']}: {_help(parameter)}"
    if parameter["type"] == "true or false":
        return widgets.Checkbox(parameter["default"], indent=False, tooltip=tooltip, layout=_WIDE)
    if len(kinds) > 1 and not _TYPES & set(kinds) and not any("list of" in kind for kind in kinds):
        return widgets.Dropdown(
            options=kinds, value=parameter["default"], tooltip=tooltip, layout=_WIDE
        )
    return widgets.Text(
        _text(parameter["default"]),
        placeholder=parameter["type"],
        tooltip=tooltip,
        layout=_WIDE,
        continuous_update=True,
    )
