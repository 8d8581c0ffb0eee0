"""The dispatch is a pure function of the device, the token count and the environment, and says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernels import Shape
from kernels.dispatch import DeviceFacts, DispatchError, choose, emulated, scan_sms

RTX_5090 = DeviceFacts("NVIDIA GeForce RTX 5090", 170, 120, 101_376, 102_400)
RTX_5080 = replace(RTX_5090, name="NVIDIA GeForce RTX 5080", sms=84)
H200 = DeviceFacts("NVIDIA H200", 132, 90, 232_448, 233_472)
T4 = DeviceFacts("Tesla T4", 40, 75, 65_536, 65_536)
ON = {"STRATA_GDN_CHUNKED": "1"}


@pytest.mark.parametrize("device", [RTX_5090, H200])
def test_chunked_runs_when_asked_for_and_fitting(device: DeviceFacts) -> None:
    assert choose(device, 128, ON).recurrence == "chunked"
    assert choose(device, 32_768, ON).recurrence == "chunked"


@pytest.mark.parametrize(
    ("device", "tokens", "environ", "reason"),
    [
        (H200, 4096, {}, "chunked is opt-in: STRATA_GDN_CHUNKED is not 1"),
        (H200, 4096, {"STRATA_GDN_CHUNKED": "0"}, "chunked is opt-in: STRATA_GDN_CHUNKED is not 1"),
        (H200, 127, ON, "127 tokens, chunked starts at 128"),
        (RTX_5080, 4096, ON, "84 SMs, the scan needs 128 in one wave"),
        (T4, 4096, ON, "compute capability 75, chunked needs 80 (cp.async)"),
        (replace(H200, shared_per_block=65_536), 4096, ON, "65,536 bytes of opt-in shared memory"),
        (replace(H200, scratch=False), 4096, ON, "the scratch of the chunked pair could not be allocated"),
        (H200, 4096, {**ON, "STRATA_EMULATE_CC": "75"}, "compute capability 75"),
    ],
)
def test_sequential_runs_elsewhere_and_says_why(
    device: DeviceFacts, tokens: int, environ: dict[str, str], reason: str
) -> None:
    choice = choose(device, tokens, environ)
    assert choice.recurrence == "sequential"
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("text", "capability", "shared"),
    [("75", 75, 65_536), ("80", 80, 166_912), ("86", 86, 101_376), ("119", 119, 101_376), ("", 90, 232_448)],
)
def test_emulation_fakes_capability_and_shared_memory_alone(text: str, capability: int, shared: int) -> None:
    seen = emulated(H200, {"STRATA_EMULATE_CC": text})
    assert seen == replace(H200, compute_capability=capability, shared_per_block=shared)


def test_emulation_never_adds_shared_memory_beyond_the_small_ones() -> None:
    small = replace(H200, shared_per_block=90_000)
    assert emulated(small, {"STRATA_EMULATE_CC": "89"}).shared_per_block == 90_000


@pytest.mark.parametrize("text", ["74", "120", "9.0", "abc", "-86", " 86"])
def test_a_bad_emulated_capability_is_named(text: str) -> None:
    with pytest.raises(DispatchError, match="STRATA_EMULATE_CC is .*75 to 119"):
        choose(H200, 4096, {**ON, "STRATA_EMULATE_CC": text})


@pytest.mark.parametrize("text", ["2", "yes", "true", " 1"])
def test_a_bad_opt_in_is_named(text: str) -> None:
    with pytest.raises(DispatchError, match="STRATA_GDN_CHUNKED is .*must be 1"):
        choose(H200, 4096, {"STRATA_GDN_CHUNKED": text})


def test_the_scan_of_four_heads_a_group_takes_two_blocks_an_sm() -> None:
    assert scan_sms(H200, Shape(16, 48)) == 128
    assert scan_sms(H200, Shape(16, 64)) == 128
    assert scan_sms(RTX_5090, Shape(16, 64)) == 256  # 102,400 bytes an SM hold one block
