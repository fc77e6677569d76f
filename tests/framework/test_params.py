"""Parameters: every field of every experiment, with everything that may not be in it."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic.fields import FieldInfo

from perflib.experiments import NAMES, get
from perflib.experiments.what_if import WhatIfParams
from perflib.framework import params as params_module
from perflib.framework.params import Params, describe_fields, parameter
from perflib.machine.hardware.caches import caches
from perflib.machine.hardware.topology import topology
from perflib.model.errors import UserError
from tests.machine import trees

ALL: dict[str, type[Params]] = {"base": Params, **{name: get(name).Params for name in NAMES}}
# By class, those of its fields that no class before it declares in the same way.
DECLARED: dict[type[Params], list[str]] = {}
_seen: set[str] = set()
for _params in ALL.values():
    fields = {f"{name}: {field!r}": name for name, field in _params.model_fields.items()}
    DECLARED[_params] = [name for text, name in fields.items() if text not in _seen]
    _seen |= fields.keys()
EACH_CLASS = pytest.mark.parametrize("params", ALL.values(), ids=ALL)
HUGE = 10**400
NO_NUMBERS = ["", "x", "1,5", "0x10", "--", True, False, [], [1], {}, object()]
NO_INTEGERS = [*NO_NUMBERS, 1.5, "1.5", math.nan, math.inf, "nan", "1e400", HUGE, -HUGE, 10**5000]
NO_FLOATS = [*NO_NUMBERS, math.nan, math.inf, -math.inf, "nan", "inf", "1e400", HUGE, -HUGE, 1e300]
NO_CORES: list[Any] = [
    *("x", "fisical", "-1", "0-", "3-1", "0,,1", "1.5", "99999999999", "0-99999999999"),
    *(None, True, -1, 1.5, math.nan, {}, [-1], [1.5], ["x"], ["0"], [True], [None], [[0]]),
]
NO_SETTINGS: list[Any] = [
    *("thp", "thp=", "=always", "thp=always,smt", "nope=1", "thp=sometimes"),
    *(None, True, 5, [], ["thp=always"], {"thp": 1}, {"thp": None}, {"nope": "1"}, {1: "x"}),
]
NO_ENVIRONMENT: list[Any] = [
    *("A", "=always", "A=1,B", None, True, 5, [], ["A=1"], {"A": 1}, {"A": None}, {1: "x"})
]


# What else must be said for a value to be valid.
COMPANIONS: dict[str, dict[str, Any]] = {
    "duration_s": {"event": ""},
    "job_pid": {"job": "running", "job_log": "job.log"},
    "functions": {"function_bytes": 64},
    "function_bytes": {"functions": 2},
    "alternate_ms": {"alternations": 1},
    "alternations": {"alternate_ms": 2},
    "fail_above_percent": {"job": "command", "job_command": "true", "other_command": "true"},
}


def companions(params: type[Params], name: str) -> dict[str, Any]:
    found = COMPANIONS.get(name, {})
    return {key: value for key, value in found.items() if key in params.model_fields}


def types_of(annotation: Any) -> Iterator[Any]:
    """The types that a field may have, one by one."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from types_of(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from types_of(part)
    else:
        yield annotation


def bounds(params: type[Params], name: str) -> dict[str, float]:
    (entry,) = [entry for entry in describe_fields(params) if entry["name"] == name]
    found: dict[str, float] = entry["bounds"]
    return found


def beyond(limits: dict[str, float], step: float) -> Iterator[float]:
    """Numbers just outside, and far outside."""
    for sign, limit in limits.items():
        direction = -1 if sign in ("gt", "ge") else 1
        yield limit if sign in ("gt", "lt") else limit + direction * step
        yield limit + direction * (abs(limit) + 1) * 1000


def wrong_values(params: type[Params], name: str) -> list[Any]:
    field: FieldInfo = params.model_fields[name]
    kinds = list(types_of(field.annotation))
    nothing = [] if type(None) in kinds else [None]
    if name == "cores":
        return NO_CORES
    if name in ("settings", "environment"):
        return NO_SETTINGS if name == "settings" else NO_ENVIRONMENT
    if list[str] in kinds and (name in ("preload", "ignore") or params is WhatIfParams):
        return [None, True, 5, {}, [5], [None]]
    if name == "speedups":
        return ["", "x", None, True, {}, [], [0], [101], [None]]
    if name == "jobs":
        return ["", "x", "1,x", "0", None, True, 1.5, [], {}, ["x"], [0], [1, 257], [None]]
    if name == "sizes_kib":
        return ["", ",", "x", "64,x", "3", 3, 1.5, None, True, [], {}, [65537], [None], [True]]
    if name in ("protocols", "states", "accesses"):  # none of them is a choice, too
        return [None, True, 5, 1.5, {}, [5], [None]]
    if list[str] in kinds:
        return ["", None, True, 5, 1.5, [], {}, [5], [None]]
    if any(typing.get_origin(kind) is list for kind in kinds):  # of numbers, or of choices
        return ["xyzzy", None, True, 1.5, {}, [None], [True], ["xyzzy"]]
    if name == "event":  # a number, a name, or nothing
        return [1.5, True, [], {}, None]
    if name in ("call_graph", "callers"):  # at the command line 'none' is no value, and a kind
        return ["", "xyzzy", "FP", 5, True, [], {}]
    if int in kinds:
        return [*NO_INTEGERS, *nothing, *map(int, beyond(bounds(params, name), 1))]
    if float in kinds:
        return [*NO_FLOATS, *nothing, *beyond(bounds(params, name), 1e-6)]
    if bool in kinds:
        return ["", "maybe", "2", 2, -1, 0.5, math.nan, [], {}, *nothing]
    if any(typing.get_origin(kind) is Literal for kind in kinds):
        return ["", "xyzzy", "KERNEL", 5, True, [], {}, *nothing]
    assert set(kinds) <= {str, type(None)}, f"a type unknown to this test: {field.annotation}"
    return [5, 1.5, True, [], {}, *nothing]


# --- what is refused ---------------------------------------------------------------------------


@EACH_CLASS
def test_wrong_value_is_an_error_that_names_the_parameter(params: type[Params]) -> None:
    for name in DECLARED[params]:
        needed = companions(params, name)
        for wrong in wrong_values(params, name):
            with pytest.raises(UserError) as caught:
                params.make({**needed, name: wrong})
            message = str(caught.value)
            assert f"parameter {name!r}" in message
            assert len(message) < 1000
            if isinstance(wrong, str):
                assert repr(wrong) in message or name in ("settings", "environment")
                words = [f"{key}={value}" for key, value in {**needed, name: wrong}.items()]
                with pytest.raises(UserError, match=f"parameter '{name}'"):
                    params.parse(words)


@EACH_CLASS
def test_number_has_bounds_and_takes_them(params: type[Params]) -> None:
    for name in DECLARED[params]:
        limits = bounds(params, name)
        kinds = set(types_of(params.model_fields[name].annotation))
        if kinds & {int, float} and name not in ("cores", "event"):
            assert limits.keys() & {"gt", "ge"}, name
            assert limits.keys() & {"lt", "le"}, f"{name}: a typing error must not measure for ever"
            for sign in limits.keys() & {"ge", "le"}:
                made = params.make({**companions(params, name), name: limits[sign]})
                assert getattr(made, name) == limits[sign]
        else:
            assert not limits, name


@EACH_CLASS
def test_misspelt_name_names_the_nearest(params: type[Params]) -> None:
    for name in DECLARED[params]:
        middle = len(name) // 2
        shortened, longer = name[:middle] + name[middle + 1 :], name + "x"
        for wrong in (shortened, longer, name.capitalize()):
            with pytest.raises(UserError, match=f"unknown parameter '{wrong}': did you") as caught:
                params.make({wrong: 1})
            assert f"'{name}'" in str(caught.value).partition("?")[0]
        with pytest.raises(UserError, match="did you mean"):
            params.parse([f"{longer}=1"])


def test_each_wrong_parameter_is_named_once() -> None:
    with pytest.raises(UserError) as caught:
        Params.make({"budget_s": -1, "seed": "x", "cores": [-1, "y"], "aslr": True})
    assert [str(caught.value).count(f"parameter '{name}'") for name in ("budget_s", "seed")] == [
        1,
        1,
    ]
    assert str(caught.value).count("parameter 'cores': [-1, 'y']") == 1
    assert "aslr" not in str(caught.value)


def test_error_says_what_is_expected_and_why() -> None:
    with pytest.raises(UserError) as caught:
        Params.make({"budget_s": 0})
    assert str(caught.value) == (
        "parameter 'budget_s': 0: Input should be greater than 0 (number, > 0 and <= 1e+06: the "
        "longest time to measure; precision may be reached earlier)"
    )


# --- what is taken -----------------------------------------------------------------------------


@EACH_CLASS
def test_default_is_valid_and_can_be_written_at_the_command_line(params: type[Params]) -> None:
    for name, field in params.model_fields.items():
        default = field.default
        text = "none" if default is None else "" if default == {} else str(default)
        if isinstance(default, list):
            text = ",".join(map(str, default))
        assert getattr(params.parse([f"{name}={text}"]), name) == default
        assert getattr(params.make({name: default}), name) == default


@EACH_CLASS
def test_parameters_survive_being_saved(params: type[Params]) -> None:
    made = params.make({"cores": "0-1", "budget_s": "2.5", "settings": "thp=always"})
    again = params.make(json.loads(json.dumps(made.model_dump(mode="json"))))
    assert again == made
    assert (again.cores, again.budget_s, again.settings) == ([0, 1], 2.5, {"thp": "always"})


@EACH_CLASS
def test_every_field_is_documented_as_data(params: type[Params]) -> None:
    described = describe_fields(params)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    for entry in described:
        assert entry["help"], entry["name"]
        assert "<class" not in entry["type"]
        for suffix, unit in {
            "_s": "s",
            "_ms": "ms",
            "_us": "us",
            "_kib": "KiB",
            "_bytes": "B",
        }.items():
            if entry["name"].endswith(suffix):
                assert entry["unit"] == unit, entry["name"]


def test_cores_in_all_their_forms() -> None:
    for word in ("all", "physical", "groups", "first"):
        assert Params.make({"cores": word}).cores == word
    assert Params.make({"cores": "0-2,5"}).cores == [0, 1, 2, 5]
    assert Params.make({"cores": 3}).cores == [3]


def test_words_for_cores_mean_cpus_of_this_machine() -> None:
    allowed = topology().allowed_cpus()
    assert Params.make({"cores": "first"}).resolved_cores() == allowed[:1]
    groups = Params.make({"cores": "groups"}).resolved_cores()
    assert groups == [group[0] for group in topology().groups(caches())]
    assert set(groups) <= set(allowed)


@pytest.mark.parametrize("word", ["none", "None", "null"])
def test_none_is_no_value_where_there_may_be_none(word: str) -> None:
    assert Params.make({"fifo_priority": word, "memory_node": word}) == Params.make({})
    with pytest.raises(UserError, match=f"parameter 'budget_s': '{word}'"):
        Params.make({"budget_s": word})


def test_subclass_adds_fields_and_keeps_the_rest() -> None:
    class Own(Params):
        code_kib: int = parameter(256, "size of the code", "KiB", ge=1, le=8)
        way: Literal["up", "down"] = parameter("up", "where to")

    with pytest.raises(UserError, match=r"parameter 'way': 'left'.*up \| down"):
        Own.make({"way": "left"})
    described = {entry["name"]: entry for entry in describe_fields(Own)}
    assert described["code_kib"]["bounds"] == {"ge": 1, "le": 8}
    assert described["way"]["type"] == "up | down"
    assert described["fifo_priority"]["type"] == "integer | none"


# --- cores and conditions of this machine -------------------------------------------------------


def on(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params_module, "topology", lambda **_: topology(tree))


def test_cores_are_those_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(trees.haswell_ep(tmp_path), monkeypatch)
    assert Params.make({"cores": "all"}).resolved_cores() == list(range(48))
    assert Params.make({}).resolved_cores() == list(range(24))
    assert Params.make({"cores": [47, 3, 3]}).resolved_cores() == [3, 47]
    with pytest.raises(UserError, match=r"cores: this machine has no CPU 48 \(it has 0-47\)"):
        Params.make({"cores": "0,48"}).resolved_cores()


def test_offline_core_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(trees.offline(tmp_path), monkeypatch)
    with pytest.raises(UserError, match=r"cores: CPU 6 is offline; it may use 0-5"):
        Params.make({"cores": "5-7"}).resolved_cores()


def test_core_outside_a_container_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(trees.container(tmp_path), monkeypatch)
    with pytest.raises(UserError) as caught:
        Params.make({"cores": [0, 7]}).resolved_cores()
    assert str(caught.value) == (
        "cores: this process may not run on CPU 7 (a container, cgroup or affinity); it may use 0-3"
    )


@pytest.mark.parametrize("empty", [[], ""])
def test_empty_list_of_cores_is_an_error_before_anything_is_measured(empty: object) -> None:
    with pytest.raises(UserError, match="cores: the list is empty; this process may use"):
        Params.make({"cores": empty}).resolved_cores()
