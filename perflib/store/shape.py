"""The shape of a run's record in its file: what must be of which type before anything uses it.

A file may come from anybody. What is listed here is used by analyses, reports and commands, which
take it as it is; everything else that a record holds is shown at most. Every entry may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perflib.model.errors import UserError

_DEEPEST = 64  # levels of records within records
_MOST_SHOWN = 60  # characters of a value

Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Number = Annotated[int, Field(ge=0, lt=1 << 16)]  # of a CPU or a node
Core = Annotated[int, Field(ge=-1, lt=1 << 16)]  # -1: wherever a job runs
Group = Annotated[int, Field(ge=-1, lt=1 << 32)] | None  # of CPUs: a core, a package
Text = str | None
Table = dict[str, Any]


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True)


class _Cpu(_Shape):
    cpu: Number
    core: Group
    package: Group
    die: Group
    node: Group
    siblings: list[Number] = []
    kernel_siblings: list[Number] | None = None
    where: str


class _Node(_Shape):
    node: Number
    cpus: list[Number] = []
    distances: list[Count] = []


class _Cache(_Shape):
    level: Number
    kind: str
    size_bytes: Count
    ways: Count | None = None
    line_bytes: Count | None = None
    sets: Count | None = None
    shared_by: list[str] | None = None


class _Tlb(_Shape):
    level: Number
    kind: str
    page_bytes: list[Annotated[int, Field(gt=0, lt=1 << 48)]]
    entries: Annotated[int, Field(ge=0, lt=1 << 32)]
    ways: Count | None


class _Machine(_Shape):
    hostname: Text = None
    machine_id: Text = None
    boot_id: Text = None
    fingerprint: Text = None
    processor: Text = None
    microarchitecture: Text = None
    kernel: Text = None
    cpus: list[_Cpu] = []
    nodes: list[_Node] = []
    caches: list[_Cache] = []
    tlbs: list[_Tlb] = []
    memory_bytes: Count | None = None
    topology: Table | None = None
    firmware: dict[str, Text] | None = None
    limits: Table | None = None
    pmu: Table | None = None
    frequency: Table | None = None
    settings: Table | None = None
    mitigations: Table | None = None


class _Task(_Shape):
    name: str


class _Softirqs(_Shape):
    ticks: Count
    of_ticks: Annotated[int, Field(gt=0, lt=1 << 63)]
    kinds: dict[str, Count]


class _Readings(_Shape):
    at_ms: list[float]
    ran_ms: list[float]
    set: list[str]
    event: list[str]
    value: list[float | None]


class _Series(_Shape):
    mode: str
    jobs: Count
    set: str
    readings: _Readings


class _Simulated(_Shape):
    tool: Text = None
    model: Text = None
    rows: list[dict[str, str | float | bool | None]] = []


class _Failed(_Shape):
    test: str
    cpu: Core
    times: Count


class _Opinion(_Shape):
    version: Text = None
    results: dict[str, Count] = {}
    failed: list[_Failed] = []
    cores: list[Number] = []


class _Plan(_Shape):
    absent: dict[str, str] | list[str] | str = {}
    not_sampled: Text = None
    cores: list[Core] = []
    cpus: list[Number] = []
    page_reach: dict[str, list[list[float]]] = {}
    reference: Annotated[int, Field(ge=-1, lt=1 << 63)] = 0


class _Recording(_Shape):
    machine: str
    title: str
    day: str


class _Provenance(_Shape):
    machine: _Machine = _Machine()
    plan: _Plan = _Plan()
    start: Text = None
    end: Text = None
    tag: Text = None
    job: Text = None
    stopped: Text = None
    measured_s: float | None = None
    trials: Count = 0
    failed_trials: Count = 0
    problems: list[str] = []
    remarks: list[str] = []
    versions: Table = {}
    kernel: Table | None = None
    kernels: Table | list[Table] = {}
    program: Table | None = None
    conditions: Table | list[Table] = {}
    settings_changed: Table = {}
    tasks: dict[str, list[_Task]] = {}
    softirqs: dict[str, _Softirqs] = {}
    opendcdiag: _Opinion = _Opinion()
    series: list[_Series] = []
    simulated: _Simulated | None = None
    instructions: dict[str, list[Count]] | None = None
    backends: Table = {}
    recorded: Table = {}
    recordings: dict[str, str] = {}
    recording: _Recording | None = None


class _Params(_Shape):  # the experiment checks its own
    job_command: Text = None
    job_log: Text = None


class _Record(_Shape):
    id: str
    experiment: str
    params: _Params
    provenance: _Provenance
    version: int = Field(alias="schema")


def check_record(record: Any, what: str) -> None:
    """Refuse a record that no perflib writes.

    Parameters
    ----------
    record
        What stood in the file as JSON: id, experiment, params, provenance, schema.
    what
        Whose it is, for the sentence.

    Raises
    ------
    UserError
        An entry is of a wrong type, too large to be one, or records are nested too deep.
    """
    if _too_deep(record):
        msg = f"{what} has records more than {_DEEPEST} levels deep: perflib wrote no such run"
        raise UserError(msg)
    try:
        _Record.model_validate(record)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False)
        others = f" (and {len(more)} more)" if more else ""
        msg = f"{what} is no run as perflib saves it: {_said(first)}{others}"
        raise UserError(msg) from None


def _said(wrong: Mapping[str, Any]) -> str:
    """An entry that is wrong: its place, what it is, what it should be."""
    place = ".".join(map(str, wrong["loc"])) or "the record"
    if wrong["type"] == "missing":
        return f"{place} is missing"
    shown = ascii(wrong["input"])
    shown = shown if len(shown) <= _MOST_SHOWN else shown[:_MOST_SHOWN] + "..."
    return f"{place} is {shown}: {wrong['msg'].lower()}"


def _too_deep(value: Any) -> bool:
    """Whether the nesting continues below the deepest level; no recursion, whatever it is."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
