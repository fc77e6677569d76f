"""The doctor's opinion of the machine's switches (see ``knobs.py``): which values spoil what."""

from __future__ import annotations

from collections.abc import Callable

from perflib.machine.doctor.checkup import Check, Patient, State
from perflib.machine.settings.knobs import KNOBS, Knob

_HOSTS_BUSINESS = ("governor", "turbo", "smt")

# What a value deserves: its state, the value that a measurement wants, and a remark.
_Judgement = tuple[State, str, str]
_Judge = Callable[[Patient, str], _Judgement]


def check_settings(patient: Patient) -> list[Check]:
    """One check for each switch that can spoil a measurement."""
    return [_check(patient, KNOBS[name], judge) for name, judge in _JUDGES.items()]


def _check(patient: Patient, knob: Knob, judge: _Judge) -> Check:
    value = knob.read(patient.root)
    if value is None:
        host = patient.hypervisor and knob.name in _HOSTS_BUSINESS
        now = "not visible: the host decides" if host else "not visible: no such setting here"
        return Check(knob.name, "unknown", now, "")
    state, wanted, remark = judge(patient, value)
    command = knob.command(wanted, patient.root) if wanted else ""
    if knob.name == "aslr":  # for one process: no need to weaken all others
        command = "setarch --addr-no-randomize COMMAND"
    return Check(knob.name, state, f"{value} ({remark})" if remark else value, command)


def _wants(wanted: str) -> _Judge:
    """A switch of which one value alone is good."""

    def judge(_: Patient, value: str) -> _Judgement:
        return ("good" if value == wanted else "warn"), wanted, ""

    return judge


def _smt(patient: Patient, value: str) -> _Judgement:
    shared = [core for core in patient.topology.cores() if len(core) > 1]
    if shared:
        return "warn", "off", f"{len(shared)} cores run more than one thread"
    if patient.hypervisor:
        return "unknown", "", "the hypervisor shows none: two CPUs here may be one core there"
    return "good", "off" if value == "on" else "", "one thread on each core"


def _huge_pages(_: Patient, value: str) -> _Judgement:
    return ("warn" if value == "always" else "good"), "madvise", ""


def _aslr(_: Patient, value: str) -> _Judgement:
    remark = "perflib's workers turn it off for themselves where an experiment asks"
    return ("good", "0", "") if value == "0" else ("warn", "0", remark)


def _numa_balancing(patient: Patient, value: str) -> _Judgement:
    if len(patient.topology.nodes) < 2:
        return "good", "0", "there is one node and nothing to balance"
    return _wants("0")(patient, value)


def _realtime(_: Patient, value: str) -> _Judgement:
    enough = int(value) == -1 or int(value) >= 950_000
    return ("good" if enough else "warn"), "950000", ""


def _paranoid(patient: Patient, value: str) -> _Judgement:
    if patient.privileged:
        return "good", "1", "this user is privileged and may count all the same"
    return ("good" if int(value) <= 1 else "warn"), "1", ""


_JUDGES: dict[str, _Judge] = {
    "governor": _wants("performance"),
    "turbo": _wants("off"),
    "smt": _smt,
    "thp": _huge_pages,
    "thp_defrag": _huge_pages,
    "aslr": _aslr,
    "numa_balancing": _numa_balancing,
    "nmi_watchdog": _wants("0"),
    "sched_rt_runtime_us": _realtime,
    "perf_event_paranoid": _paranoid,
}
