from __future__ import annotations

from pathlib import Path

import pytest

from perflib.machine.settings.knobs import KNOBS, knob
from perflib.model.errors import UserError
from tests.machine import trees

CPU = trees.CPU


def test_a_governor_has_a_file_for_each_frequency_domain(tmp_path: Path) -> None:
    trees.haswell_ep(tmp_path)
    governor = knob("governor")
    assert len(governor.paths(tmp_path)) == 48
    assert governor.read(tmp_path) == "powersave"
    trees.write(tmp_path, {f"{CPU}/cpufreq/policy7/scaling_governor": "performance"})
    assert governor.read(tmp_path) == "mixed (performance, powersave)"
    command = governor.command("performance", tmp_path)
    assert command == f"echo performance | sudo tee /{CPU}/cpufreq/policy*/scaling_governor"


def test_an_old_kernel_keeps_governors_elsewhere(tmp_path: Path) -> None:
    trees.write(tmp_path, {f"{CPU}/cpu0/cpufreq/scaling_governor": "ondemand"})
    assert knob("governor").read(tmp_path) == "ondemand"
    assert f"/{CPU}/cpu[0-9]*/" in knob("governor").command("performance", tmp_path)


@pytest.mark.parametrize(
    ("file", "on", "off"),
    [("intel_pstate/no_turbo", "0", "1"), ("cpufreq/boost", "1", "0")],
)
def test_turbo_is_said_the_same_way_everywhere(
    tmp_path: Path, file: str, on: str, off: str
) -> None:
    turbo = knob("turbo")
    trees.write(tmp_path, {f"{CPU}/{file}": on})
    (path,) = turbo.paths(tmp_path)
    assert turbo.read(tmp_path) == "on"
    assert (turbo.encode("on", path), turbo.encode("off", path)) == (on, off)
    assert turbo.current(path) == on
    assert turbo.command("off", tmp_path) == f"echo {off} | sudo tee /{CPU}/{file}"
    trees.write(tmp_path, {f"{CPU}/{file}": off})
    assert turbo.read(tmp_path) == "off"


def test_the_chosen_word_of_several(tmp_path: Path) -> None:
    trees.haswell_ep(tmp_path)
    assert knob("thp").read(tmp_path) == "always"
    (path,) = knob("thp_defrag").paths(tmp_path)
    assert knob("thp_defrag").current(path) == "madvise"


def test_a_sysctl_is_set_by_its_name(tmp_path: Path) -> None:
    assert knob("aslr").command("0", tmp_path) == "sudo sysctl -w kernel.randomize_va_space=0"
    assert knob("nr_hugepages").command("64") == "sudo sysctl -w vm.nr_hugepages=64"


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_a_missing_switch_is_none(tmp_path: Path, name: str) -> None:
    assert KNOBS[name].paths(tmp_path) == []
    assert KNOBS[name].read(tmp_path) is None
    assert KNOBS[name].help
    assert KNOBS[name].cost


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_value_can_be_written_and_read_back(tmp_path: Path, name: str) -> None:
    switch = KNOBS[name]
    for number, pattern in enumerate(switch.patterns):
        root = tmp_path / str(number)
        trees.write(root, {pattern.replace("[0-9]*", "0").replace("*", "0"): "x"})
        for value in switch.values or ("-1" if switch.minimum < 0 else "0", "7"):
            for path in switch.paths(root):
                path.write_text(switch.encode(value, path))
            assert switch.read(root) == value


def test_wrong_values_are_refused_with_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'performance'"):
        knob("governor").check("performence")
    with pytest.raises(UserError, match="an integer from 0 up"):
        knob("nr_hugepages").check("-1")
    with pytest.raises(UserError, match="an integer from -1 up"):
        knob("perf_event_paranoid").encode("low", tmp_path)
    with pytest.raises(UserError, match="did you mean 'governor'"):
        knob("govenor")
