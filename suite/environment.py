"""The machine and the software of a run."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from kernels import fingerprint
from suite.facts import Clocks, Environment, Look
from suite.lock import idle_processes
from suite.quality import POWER_CAP

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
    top, head = _git("rev-parse", "--show-toplevel"), _git("rev-parse", "--verify", "HEAD")
    if head is None or top is None or not ROOT.samefile(top):  # a copy within another repository has not its commit
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
        self._busy: list[tuple[float, int]] = []
        self._watched = 0.0

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

    def watch(self, now: bool = False) -> None:
        """Keep NVML's samples of whether a kernel ran: its buffer holds those of some 20 s. Asks every 5 s at most."""
        if not now and time.monotonic() - self._watched < 5:
            return
        self._watched = time.monotonic()
        last = int(self._busy[-1][0] * 1e6) if self._busy else 0
        found = self.ask("nvmlDeviceGetSamples", self._nvml.NVML_GPU_UTILIZATION_SAMPLES, last)
        new = [(one.timeStamp * 1e-6, int(one.sampleValue.uiVal)) for one in (found[1] if found else ())]
        self._busy += [one for one in new if not self._busy or one[0] > self._busy[-1][0]]

    def busy_share(self, seconds: float) -> float | None:
        """Share of the last seconds in which a kernel ran, this process's or another's; None where NVML does not tell.

        NVML's samples are the shares of equal stretches of some 0.2 s.
        """
        self.watch(now=True)
        since = time.time() - seconds
        own = [share for at, share in self._busy if at >= since]
        return sum(own) / len(own) / 100 if own else None

    def most_sm_mhz(self) -> int | None:
        """The highest SM clock of the card, MHz."""
        found: int | None = self.ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM)
        return found

    def _reasons(self, bits: int) -> str:
        names = {
            self._nvml.nvmlClocksThrottleReasonSwPowerCap: POWER_CAP,
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
