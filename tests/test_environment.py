"""What NVML tells of a card, on a stand-in for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.environment import Nvml
from suite.lock import idle


class NVMLError(Exception):
    pass


def refuse(*arguments: Any) -> Any:
    raise NVMLError("not supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    names = ("SwPowerCap", "HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
    fake = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: bus,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        NVML_PERF_POLICY_POWER=0,
        NVML_PERF_POLICY_THERMAL=1,
        nvmlDeviceGetPowerUsage=lambda handle: 412_000,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 4,
        nvmlDeviceGetClockInfo=lambda handle, clock: 1980 if clock == 1 else 3201,
        nvmlDeviceGetMaxClockInfo=lambda handle, clock: 1980,
        nvmlDeviceGetTemperature=lambda handle, sensor: 40,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: ["this one"],
        nvmlDeviceGetViolationStatus=lambda handle, policy: SimpleNamespace(violationTime=100 + policy),
        **{f"nvmlClocksThrottleReason{name}": 4 << place for place, name in enumerate(names)},
    )
    monkeypatch.setitem(__import__("sys").modules, "pynvml", fake)
    return fake


def test_a_look_tells_clocks_power_processes_and_time_held_back(nvml: Any) -> None:
    look = Nvml("bus").look()
    assert (look.clocks.sm_mhz, look.clocks.power_w, look.clocks.throttle) == (1980, 412.0, "software power cap")
    assert (look.others, look.throttled_ns) == (0, 201)


def test_all_processes_but_the_runs_own_count(nvml: Any) -> None:
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: ["this one", "its parent", "another"]
    card = Nvml("bus")
    assert card.look().others == 2
    card.own_processes = 2
    assert card.look().others == 1
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: []  # another container's NVML
    assert card.look().others == 0


def test_what_the_card_does_not_tell_is_none(nvml: Any) -> None:
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetViolationStatus", "nvmlDeviceGetMaxClockInfo"):
        setattr(nvml, name, refuse)
    look = Nvml("bus").look()
    assert (look.others, look.throttled_ns, Nvml("bus").most_sm_mhz()) == (None, None, None)


def test_our_own_idle_processes_are_no_strangers(nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDN_LOCK_DIR", str(tmp_path))
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: ["this one", "waits", "computes"]
    card = Nvml("0000:01:00.0")
    card.uuid = "GPU-1"
    with idle("GPU-1"):
        assert card.look().others == 1
    assert card.look().others == 2
