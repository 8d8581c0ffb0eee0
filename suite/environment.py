"""The machine and the software of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from kernels import fingerprint
from suite.facts import Clocks, Environment, Look
from suite.lock import idle_processes

ROOT = Path(__file__).parent.parent


def _git(*arguments: str) -> str | None:
    """What git prints about the checkout, or None outside one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def commit() -> tuple[str | None, bool | None]:
    """The checkout's commit, and whether source that git tracks differs from it; stored records do not count.

    Outside a checkout, such as in a container, `GDN_COMMIT` gives the commit.
    """
    head = _git("rev-parse", "--verify", "HEAD")
    if head is None:
        return os.environ.get("GDN_COMMIT"), None
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)results/history")
    return head, None if changed is None else bool(changed)


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def cores() -> int:
    """Logical processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Nvml:
    """NVML's view of one card; what it does not tell is None."""

    def __init__(self, bus_id: str) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id)
        self.own_processes = 1
        self.uuid: str | None = None

    def ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    def clocks(self) -> Clocks:
        """Clocks, temperature and power at this moment."""
        power = self.ask("nvmlDeviceGetPowerUsage")
        reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Clocks(
            sm_mhz=self.ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            memory_mhz=self.ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_MEM),
            temperature_c=self.ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000,
            throttle=None if reasons is None else self._reasons(reasons),
        )

    def look(self) -> Look:
        """Clocks, other processes and time held back at this moment; takes some milliseconds."""
        running = self.ask("nvmlDeviceGetComputeRunningProcesses")
        held = [
            self.ask("nvmlDeviceGetViolationStatus", policy)
            for policy in (self._nvml.NVML_PERF_POLICY_POWER, self._nvml.NVML_PERF_POLICY_THERMAL)
        ]
        known = [int(one.violationTime) for one in held if one is not None]
        return Look(
            clocks=self.clocks(),
            # Counted, not told apart by their numbers: in a container these are others than NVML's.
            others=None if running is None else max(0, len(running) - self.own_processes - self._idle()),
            throttled_ns=sum(known) if known else None,
        )

    def _idle(self) -> int:
        """Processes of other jobs of ours that have a context on the card and wait."""
        return idle_processes(self.uuid) if self.uuid else 0

    def most_sm_mhz(self) -> int | None:
        """The highest SM clock of the card, MHz."""
        found: int | None = self.ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM)
        return found

    def _reasons(self, bits: int) -> str:
        names = {
            self._nvml.nvmlClocksThrottleReasonSwPowerCap: "software power cap",
            self._nvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
            self._nvml.nvmlClocksThrottleReasonSwThermalSlowdown: "software thermal slowdown",
            self._nvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hardware thermal slowdown",
            self._nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
        }
        return ", ".join(name for bit, name in names.items() if bits & bit)

    def driver(self) -> str:
        return str(self._nvml.nvmlSystemGetDriverVersion())


def card_uuid(device: int) -> str | None:
    """The UUID of a card by its CUDA index; None where NVML does not tell. Makes no context."""
    import cupy

    try:
        found: str | None = Nvml(cupy.cuda.runtime.deviceGetPCIBusId(device)).ask("nvmlDeviceGetUUID")
    except Exception:  # no NVML, or not this card: measuring goes on without
        return None
    return found


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def collect(device: int | None) -> tuple[Environment, Nvml | None]:
    """The environment, with the clocks of now as `before`, and the card's NVML.

    Args:
        device: CUDA index, or None for a run on the host.
    """
    head, dirty = commit()
    common: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": cores(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "commit": head,
        "dirty": dirty,
        "launcher": fingerprint.launcher(),
    }
    if device is None:
        return Environment(**common), None
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(device)
    # By the bus: the UUID that CuPy gives ends at its first zero byte.
    nvml = Nvml(cupy.cuda.runtime.deviceGetPCIBusId(device))
    nvml.uuid = nvml.ask("nvmlDeviceGetUUID")
    memory = nvml.ask("nvmlDeviceGetMemoryInfo")
    ecc = nvml.ask("nvmlDeviceGetEccMode")
    limit = nvml.ask("nvmlDeviceGetEnforcedPowerLimit")
    return (
        Environment(
            **common,
            gpu=properties["name"].decode(),
            gpu_uuid=nvml.uuid,
            sms=properties["multiProcessorCount"],
            memory_mib=(memory.total if memory else properties["totalGlobalMem"]) // 2**20,
            ecc=None if ecc is None else bool(ecc[0]),
            power_limit_w=None if limit is None else limit / 1000,
            compute_capability=f"{properties['major']}.{properties['minor']}",
            driver=nvml.driver(),
            cuda_runtime=_version(cupy.cuda.runtime.runtimeGetVersion()),
            nvrtc=".".join(map(str, cupy.cuda.nvrtc.getVersion())),
            cupy=cupy.__version__,
            before=nvml.clocks(),
        ),
        nvml,
    )
