"""What NVML tells of a card, on a stand-in for it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite import environment
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


def test_the_share_in_which_a_kernel_ran_is_kept_beyond_nvmls_buffer(nvml: Any) -> None:
    now = time.time()
    buffer = [(now - 9.0, 90), (now - 3.0, 40), (now - 2.0, 60)]

    def samples(handle: Any, kind: int, last: int) -> tuple[int, list[Any]]:
        own = [
            SimpleNamespace(timeStamp=round(at * 1e6), sampleValue=SimpleNamespace(uiVal=share))
            for at, share in buffer
            if round(at * 1e6) > last
        ]
        return 1, own

    nvml.NVML_GPU_UTILIZATION_SAMPLES, nvml.nvmlDeviceGetSamples = 1, samples
    card = Nvml("bus")
    card.watch()
    buffer[:] = [(now - 2.0, 60), (now - 1.0, 80)]
    assert card.busy_share(5.0) == pytest.approx(0.6)  # without the one of 9 seconds ago
    nvml.nvmlDeviceGetSamples = refuse
    assert Nvml("bus").busy_share(5.0) is None


def test_a_copy_within_another_repository_has_not_its_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = {"--show-toplevel": str(tmp_path), "--verify": "a" * 40}
    monkeypatch.setattr(environment, "_git", lambda *arguments: asked.get(arguments[1], ""))
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    assert environment.commit() == ("a" * 40, False)
    monkeypatch.setattr(environment, "ROOT", tmp_path.parent)
    monkeypatch.setenv("GDN_COMMIT", "b" * 40)
    assert environment.commit() == ("b" * 40, None)


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
