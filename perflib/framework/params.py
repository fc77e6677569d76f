"""Parameters: one typed, documented record an experiment; its interfaces are made from it.

The command line, the form, papermill's cell and the documentation are all made from the fields of
a ``Params`` class: type, default, bounds, unit and help stand there and nowhere else.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from perflib.machine.cpulist import format_cpus, parse_cpus
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.topology import topology
from perflib.machine.settings.knobs import knob
from perflib.measure.conditions import Conditions
from perflib.model.errors import UserError, choose

_NO_VALUE = ("none", "null")  # as text, where a parameter need have no value
_MAX_SHOWN = 80  # characters of a wrong value that an error repeats


def parameter(default: Any, help_: str, unit: str = "", **bounds: Any) -> Any:
    """A field of a ``Params``: its default, a sentence of help, its unit, and bounds (ge, le)."""
    return Field(default, description=help_, json_schema_extra={"unit": unit}, **bounds)


def budget(seconds: float, most: float = 1e6) -> Any:
    """The field ``budget_s`` with a default of the experiment's own."""
    text = "the longest time to measure; precision may be reached earlier"
    return parameter(seconds, text, "s", gt=0, le=most)


def precision(target: float, until: str, unit: str = "percentage points") -> Any:
    """The field ``precision_percent``: measure until something is below it."""
    return parameter(target, f"measure until {until}", unit, gt=0, le=100)


def limit(percent: float, help_: str, le: float = 1000) -> Any:
    """A field in percent: from there on something counts."""
    return parameter(percent, help_, "percent", gt=0, le=le)


def assignments(words: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` words of a command line, as text; ``Params.make`` reads the values.

    Raises
    ------
    UserError
        A word is no assignment, or a key is given twice.
    """
    given: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name.isidentifier():
            msg = f"{word!r} is no parameter: write KEY=VALUE, for example budget_s=30"
            raise UserError(msg)
        if name in given:
            msg = f"parameter {name!r} is given twice: {given[name]!r} and {value!r}"
            raise UserError(msg)
        given[name] = value
    return given


def _read_cores(value: object) -> object:
    """One of the words, a list of CPUs, one CPU, or text such as ``0-3,8``."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return [value]
    if isinstance(value, str) and value not in ("all", "physical", "groups", "first"):
        try:
            return parse_cpus(value)
        except UserError as error:
            msg = f"{error}; or 'all', 'physical' (one CPU of each core), 'groups' or 'first'"
            raise ValueError(msg) from None
    return value


Cores = Annotated[
    Literal["all", "physical", "groups", "first"] | list[Annotated[int, Field(ge=0, strict=True)]],
    BeforeValidator(_read_cores),
]


def _read_pairs(value: object) -> object:
    """Names and values as a mapping, or as text ``thp=always,governor=performance``."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    if any(not sign or not name.strip() for name, sign, _ in pairs):
        msg = "it is written NAME=VALUE, several with commas between: thp=always,aslr=0"
        raise ValueError(msg)
    return {name.strip(): setting.strip() for name, _, setting in pairs}


def split_items(value: object) -> object:
    """A list, one of its items, or text with commas between, as a list."""
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


Item = TypeVar("Item")
AnyItems = Annotated[list[Item], BeforeValidator(split_items)]
Items = Annotated[list[Item], BeforeValidator(split_items), Field(min_length=1)]
AnyWords = AnyItems[str]
Words = Items[str]
Chosen = TypeVar("Chosen")
# A choice of words among which is 'none': the command line and the form read it as no value.
OrNone = Annotated[Chosen, BeforeValidator(lambda value: "none" if value is None else value)]
Pairs = Annotated[dict[str, str], BeforeValidator(_read_pairs)]


def known_names(
    field: str, kind: str, names: Sequence[str], known: Sequence[str], alone: Sequence[str] = ()
) -> None:
    """Refuse a name that is not known, in a validator; one of ``alone`` may stand by itself.

    Raises
    ------
    ValueError
        Says which is nearest.
    """
    if len(names) == 1 and names[0] in alone:
        return
    for name in names:
        if name not in known:
            msg = f"{field}: {choose(kind, name, [*known, *alone])}"
            raise ValueError(msg)


class Params(BaseModel):
    """What every experiment lets its user say. A misspelt name is an error, never ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    siblings_measured: ClassVar[bool] = True  # where a run of `sharing` has them; or the kernel's

    cores: Cores = parameter(
        "physical",
        "which CPUs to visit: 'all', 'physical' (one CPU of each core), 'groups' (one of each "
        "NUMA node and last-level cache), 'first', or a list such as 0-3,8",
    )
    budget_s: float = budget(50.0)
    precision_percent: float = precision(0.5, "every interval's half-width is below this")
    seed: int = parameter(
        1, "of the random order of the rounds, and of what is simulated", ge=0, lt=2**53
    )
    fifo_priority: int | None = parameter(
        None, "real-time priority of the measured process (none: an ordinary process)", ge=1, le=99
    )
    aslr: bool = parameter(True, "whether addresses are randomised, as they ordinarily are")
    environment_bytes: int | None = parameter(
        None,
        "total size of the measured process's environment (none: as it is)",
        "B",
        ge=0,
        le=131072,
    )
    environment: Pairs = parameter(
        {}, "environment variables of the measured process, in addition to its inherited ones"
    )
    preload: AnyWords = parameter(
        [], "shared libraries to load first (LD_PRELOAD), as absolute paths with commas between"
    )
    memory_policy: Literal["default", "bind", "preferred", "interleave"] = parameter(
        "default", "where the measured process's memory comes from; see memory_node"
    )
    memory_node: int | None = parameter(
        None, "the NUMA node that memory_policy speaks of", ge=0, le=1023
    )
    huge_pages: Literal["default", "always", "never"] = parameter(
        "default", "transparent huge pages: 'never' for this process, or as the machine has it"
    )
    settings: Pairs = parameter(
        {}, "system settings to change meanwhile, by name (thp=always); needs root; put back"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _as_meant(cls, value: object, info: ValidationInfo) -> object:
        """``none`` is no value wherever there may be none; no number is a truth value."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        given = value if isinstance(value, list) else [value]
        if any(isinstance(one, bool) for one in given) and annotation is not bool:
            msg = "Input should not be true or false"
            raise ValueError(msg)
        if isinstance(value, str) and value.lower() in _NO_VALUE:
            return None if type(None) in typing.get_args(annotation) else value
        return value

    @classmethod
    def make(cls, given: Mapping[str, Any]) -> Self:
        """Validate what a user gave.

        Raises
        ------
        UserError
            Names the parameter, what was given, what is valid, and the nearest name.
        """
        for name in given:
            if name not in cls.model_fields:
                raise UserError(choose("parameter", name, cls.model_fields))
        try:
            made = cls(**given)
        except ValidationError as error:
            raise UserError("; ".join(_sentences(cls, error, given))) from None
        try:
            for name, value in made.settings.items():
                knob(name).check(value)
        except UserError as error:
            msg = f"parameter 'settings': {error}"
            raise UserError(msg) from None
        return made

    @classmethod
    def parse(cls, words: Iterable[str]) -> Self:
        """Validate ``KEY=VALUE`` words of a command line; ``none`` stands for no value."""
        return cls.make(assignments(words))

    def resolved_cores(self) -> list[int]:
        """The CPUs to visit on this machine.

        Raises
        ------
        UserError
            A CPU that does not exist, is offline, or that this process may not use.
        """
        places = topology(measured=self.siblings_measured)
        allowed = places.allowed_cpus()
        if self.cores == "all":
            return allowed
        if self.cores == "physical":
            return places.one_per_core()
        if self.cores == "groups":
            return [group[0] for group in places.groups(caches())]
        if self.cores == "first":
            return allowed[:1]
        assert isinstance(self.cores, list)
        wanted = sorted(set(self.cores))
        if not wanted:
            msg = f"cores: the list is empty; this process may use {format_cpus(allowed)}"
            raise UserError(msg)
        for cpu in wanted:
            if cpu in allowed:
                continue
            present = [place.cpu for place in places.cpus]
            if cpu not in present:
                why = f"this machine has no CPU {cpu} (it has {format_cpus(present)})"
            elif cpu not in places.online_cpus():
                why = f"CPU {cpu} is offline"
            else:
                why = f"this process may not run on CPU {cpu} (a container, cgroup or affinity)"
            msg = f"cores: {why}; it may use {format_cpus(allowed)}"
            raise UserError(msg)
        return wanted

    def conditions(self, cpu: int | None) -> Conditions:
        """What the worker on a CPU is to have; ``None``: one that goes from CPU to CPU."""
        return Conditions(
            cpu=cpu,
            fifo_priority=self.fifo_priority,
            aslr=self.aslr,
            environment=self.environment,
            environment_bytes=self.environment_bytes,
            preload=tuple(self.preload),
            memory_policy=self.memory_policy,
            memory_node=self.memory_node,
            huge_pages=self.huge_pages,
        )


def _sentences(
    params: type[Params], error: ValidationError, given: Mapping[str, Any]
) -> Iterable[str]:
    """What pydantic complains of, one sentence a parameter."""
    seen: set[str] = set()
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else "parameters"
        if name in seen:
            continue
        seen.add(name)
        field = params.model_fields.get(name)
        if field is None:
            yield str(problem["msg"]).removeprefix("Value error, ")
            continue
        said = str(problem["msg"]).removeprefix("Value error, ")
        yield f"parameter {name!r}: {_shown(given[name])}: {said} ({_expects(field)})"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no integer of more than 4300 digits
        return "a huge number"
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."


def _type_name(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if annotation is type(None):
        return "none"
    if origin is Annotated:
        return _type_name(typing.get_args(annotation)[0])
    if origin is Literal:
        return " | ".join(map(str, typing.get_args(annotation)))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(_type_name(part) for part in typing.get_args(annotation))
    if origin is list:
        return f"list of {_type_name(typing.get_args(annotation)[0])}"
    if origin is dict:
        return "NAME=VALUE,..."
    names = {int: "integer", float: "number", bool: "true or false", str: "text"}
    return names.get(annotation, str(annotation))


def _bounds(field: FieldInfo) -> dict[str, float]:
    return {
        name: getattr(rule, name)
        for rule in field.metadata
        for name in ("gt", "ge", "lt", "le")
        if getattr(rule, name, None) is not None
    }


def _expects(field: FieldInfo) -> str:
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<="}
    bounds = " and ".join(f"{signs[name]} {value:g}" for name, value in _bounds(field).items())
    return f"{_type_name(field.annotation)}{', ' + bounds if bounds else ''}: {field.description}"


def describe_fields(params: type[Params]) -> list[dict[str, Any]]:
    """The parameters as data: name, type, default, unit, bounds, help."""
    return [
        {
            "name": name,
            "type": _type_name(field.annotation),
            "default": field.default,
            "unit": typing.cast("dict[str, str]", field.json_schema_extra or {}).get("unit", ""),
            "bounds": _bounds(field),
            "help": field.description or "",
        }
        for name, field in params.model_fields.items()
    ]
