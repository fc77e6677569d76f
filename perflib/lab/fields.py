"""The fields of a form, made from an experiment's documented parameters and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from perflib.lab.markup import escape

_FIRST = ("cores", "budget_s", "precision_percent")  # every experiment has them; asked for most
_OWN_FIRST = 2  # of its own parameters, in the order in which it declares them
_CONDITIONS = "conditions of the measurement"
_TYPES = {"integer", "number", "text", "true or false", "none", "NAME=VALUE,..."}
_WIDE = widgets.Layout(width="28em")
_NAMED = {"description_width": "13em"}
_NOTHING = "none"
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


class Fields:
    """One field a parameter, with its unit, its help and its bounds next to it.

    Those that are changed most come first, the others below "more", in groups. What differs from
    the preset is marked.

    Parameters
    ----------
    documented
        The parameters as ``Experiment.documentation()`` has them.
    common
        Names that all experiments share.
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
        self._filled: Mapping[str, Any] = {}
        self.widgets = {name: _widget(parameter) for name, parameter in self._documented.items()}
        self._helps = {
            name: widgets.HTML(_described(parameter))
            for name, parameter in self._documented.items()
        }
        for field in self.widgets.values():
            field.observe(self._on_change, "value")
        first, self._groups = _grouped(list(self.widgets), common)
        self._more = widgets.Accordion(
            [self._grid(names) for names in self._groups.values()], titles=tuple(self._groups)
        )
        self.box = widgets.VBox([self._grid(first), widgets.HTML("<b>more</b>"), self._more])

    def _on_change(self, _: object) -> None:
        if not self._silent:
            self._mark()
            self._changed()

    def _mark(self) -> None:
        """Mark what differs from the preset, for the eye and in words."""
        differing = set()
        for name, parameter in self._documented.items():
            field, usual = self.widgets[name], self._shown(name, self._filled)
            differs = field.value != usual
            field.description = f"• {name} (changed)" if differs else name
            (field.add_class if differs else field.remove_class)("perflib-changed")
            before = f"<b>preset: {escape(_text(usual)) or 'empty'}.</b> " if differs else ""
            self._helps[name].value = before + _described(parameter)
            differing |= {name} if differs else set()
        self._more.titles = tuple(
            f"{title} • {count} changed" if (count := len(differing & set(names))) else title
            for title, names in self._groups.items()
        )

    def _shown(self, name: str, values: Mapping[str, Any]) -> Any:
        """What a field shows for its value among these, or for its default."""
        value = values.get(name, self._documented[name]["default"])
        return _text(value) if isinstance(self.widgets[name], widgets.Text) else value

    def _grid(self, names: Sequence[str]) -> widgets.GridBox:
        cells: list[widgets.Widget] = []
        for name in names:
            unit = widgets.HTML(escape(self._documented[name]["unit"]))
            cells += [self.widgets[name], unit, self._helps[name]]
        return widgets.GridBox(
            cells,
            layout=widgets.Layout(
                grid_template_columns="max-content max-content minmax(16em, 1fr)",
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
        """Show these values, a preset's, and the defaults of all others."""
        self._filled = values
        self._silent = True
        for name, widget in self.widgets.items():
            widget.value = self._shown(name, values)
        self._silent = False
        self._mark()
        self._changed()

    def enable(self, *, enabled: bool) -> None:
        """Let the fields be changed, or not."""
        for widget in self.widgets.values():
            widget.disabled = not enabled


def _grouped(names: Sequence[str], common: set[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Which fields come first, and which below "more", by what they are about."""
    own = [name for name in names if name not in common]
    job = [name for name in own if name.startswith("job_")]
    limits = [name for name in own if name.endswith("_percent")]
    others = [name for name in own if name not in {*job, *limits}]
    groups = {
        "job": job,
        "sampling": [*others[_OWN_FIRST:], "seed"],
        "limits": limits,
        _CONDITIONS: [name for name in names if name in common - {*_FIRST, "seed"}],
    }
    return [*_FIRST, *others[:_OWN_FIRST]], {title: held for title, held in groups.items() if held}


def _described(parameter: Mapping[str, Any]) -> str:
    return f'<span class="perflib-help">{escape(_help(parameter))}</span>'


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
    name = parameter["name"]
    tooltip = f"{name}: {_help(parameter)}"
    if parameter["type"] == "true or false":
        return widgets.Checkbox(
            parameter["default"], tooltip=tooltip, layout=_WIDE, style=_NAMED, description=name
        )
    if len(kinds) > 1 and not _TYPES & set(kinds) and not any("list of" in kind for kind in kinds):
        return widgets.Dropdown(
            options=kinds,
            value=parameter["default"],
            description=name,
            tooltip=tooltip,
            layout=_WIDE,
            style=_NAMED,
        )
    return widgets.Text(
        _text(parameter["default"]),
        description=name,
        placeholder=parameter["type"],
        tooltip=tooltip,
        layout=_WIDE,
        style=_NAMED,
        continuous_update=True,
    )
