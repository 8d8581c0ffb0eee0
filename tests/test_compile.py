"""The kernels' guard on a machine without a GPU: every source compiles for every architecture, within bounds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kernels import Shape
from kernels.compile import (
    CANARY_COPY,
    CANARY_FMA,
    COMPARE,
    CUDA_SOURCES,
    HOLD,
    PREPARE,
    PREPARED_FLOATS,
    REFERENCE,
    SCAN,
    SEQUENTIAL,
    SEQUENTIAL_TUNED,
    SOURCES,
    STAMP,
    TENSOR_PREPARE,
    TENSOR_SCAN,
    TENSOR_SCAN_WGMMA,
    TENSOR_SMALL,
    TENSOR_SMALL_WGMMA,
    TENSOR_SOURCES,
    CompileError,
    Cubin,
    Source,
    compile_source,
    compiled,
    scan_shared_bytes,
    tensor_chunk_bytes,
    tensor_shared_bytes,
)
from kernels.dispatch import CHUNKED_MIN_SHARED

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
SHAPES = (*(Shape(16, 16 * group) for group in (1, 2, 3, 4)), Shape(16, 48, "grouped"))

BLOCKS = {  # threads of a block, and blocks that must fit an SM
    SEQUENTIAL: lambda heads, arch: (128, 1),
    SEQUENTIAL_TUNED: lambda heads, arch: (256, 1),
    PREPARE: lambda heads, arch: (128, 4),
    SCAN: lambda heads, arch: (256, 2 if heads < 3 and arch in (80, 90, 100) else 1),
    TENSOR_PREPARE: lambda heads, arch: (128, {80: 4, 90: 5, 100: 5}.get(arch, 2)),
    TENSOR_SCAN: lambda heads, arch: (256, 1),
    TENSOR_SCAN_WGMMA: lambda heads, arch: (384, 1),
    TENSOR_SMALL: lambda heads, arch: (256, 1),
    TENSOR_SMALL_WGMMA: lambda heads, arch: (384, 1),
    REFERENCE: lambda heads, arch: (256, 1),
    STAMP: lambda heads, arch: (32, 1),
    HOLD: lambda heads, arch: (1, 1),
    CANARY_FMA: lambda heads, arch: (256, 4 if arch == 75 else 6),
    CANARY_COPY: lambda heads, arch: (256, 4 if arch == 75 else 6),
    COMPARE: lambda heads, arch: (256, 4),
}
WGMMA = [source for source in TENSOR_SOURCES if source.only_arch]

LEAST_OPT_IN = 101_376
"""Shared memory that a block may ask for on sm_86, sm_89 and sm_120, bytes: the least of sm_80 and later."""

SM90_OPT_IN = 232_448
"""The same on sm_90."""


def label(source: Source) -> str:
    """The test's name of a source; two builds have one entry."""
    return f"{source.entry}{'-sm_90a' if source.only_arch else ''}"


def serialised(cubin: Cubin) -> list[str]:
    """What ptxas says of products it made wait for each other; they stay right, and take twice the time."""
    return re.findall(r"\(C75\d\d\).*", cubin.log)


def why_not() -> str:
    """Why nothing can be compiled here, or an empty text."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # CuPy is missing, or whatever it says where libnvrtc is
        return f"{type(error).__name__}: {error}"
    return ""


needs_nvrtc = pytest.mark.skipif(bool(why_not()), reason=f"no NVRTC: {why_not()}")


def test_every_source_is_listed() -> None:
    assert {source.file for source in SOURCES} == {path.name for path in CUDA_SOURCES.glob("*.cu")}
    assert set(BLOCKS) == set(SOURCES)


@needs_nvrtc
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape}-{shape.head_map}")
@pytest.mark.parametrize("arch", ARCHITECTURES, ids="sm_{}".format)
@pytest.mark.parametrize("source", SOURCES, ids=label)
def test_compiles_within_bounds(source: Source, arch: int, shape: Shape) -> None:
    if reason := source.unsupported(arch):
        with pytest.raises(CompileError, match=f"^{source.file} {reason}$"):
            compiled(source, shape, arch)
        return
    cubin = compiled(source, shape, arch)
    assert cubin.code.startswith(b"\x7fELF")
    assert set(cubin.resources) == {source.entry}
    used = cubin.resources[source.entry]
    threads, blocks = BLOCKS[source](source.heads(shape), arch)
    assert used.spill_bytes == 0
    assert used.stack_bytes == 0
    assert 0 < used.registers <= min(255, 65_536 // (threads * blocks))
    assert used.shared_bytes <= 48 * 1024  # what a block has without asking


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape}-{shape.head_map}")
def test_scan_fits_the_seeds_shared_memory(shape: Shape) -> None:
    assert scan_shared_bytes(SCAN.heads(shape)) <= CHUNKED_MIN_SHARED == 95_948


@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        (SEQUENTIAL_TUNED, {75: None, 90: None}),
        (TENSOR_SCAN, {75: "needs sm_80 or later; this is sm_75", 80: None, 90: None, 120: None}),
        (TENSOR_SCAN_WGMMA, {80: "needs sm_90a; this is sm_80", 90: None, 100: "needs sm_90a; this is sm_100"}),
    ],
    ids=lambda value: label(value) if isinstance(value, Source) else "",
)
def test_what_a_source_is_compiled_for(source: Source, reasons: dict[int, str | None]) -> None:
    assert {arch: source.unsupported(arch) for arch in reasons} == reasons


@pytest.mark.parametrize("source", TENSOR_SOURCES, ids=label)
def test_tensor_blocks_fit_the_least_shared_memory_of_their_cards(source: Source) -> None:
    assert tensor_shared_bytes(source) <= (SM90_OPT_IN if source.only_arch else LEAST_OPT_IN)


@needs_nvrtc
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape}-{shape.head_map}")
@pytest.mark.parametrize("source", WGMMA, ids=label)
def test_products_of_warpgroups_run_on(source: Source, shape: Shape) -> None:
    cubin = compiled(source, shape, source.only_arch)
    assert serialised(cubin) == []
    # What a block is launched with; one warpgroup then takes 232 a thread, and two keep 136.
    assert cubin.resources[source.entry].registers == 168 == (232 + 2 * 136) // 3


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the CUDA sources, to be changed."""
    return Path(shutil.copytree(CUDA_SOURCES, tmp_path / "cuda"))


@needs_nvrtc
@pytest.mark.parametrize("source", WGMMA, ids=label)
def test_serialised_products_are_seen(source: Source, sources: Path) -> None:
    """The guard itself is checked: without the wait, sums are read while their products run."""
    header, wait = sources / "wgmma.cuh", 'asm volatile("wgmma.wait_group'
    text = header.read_text()
    assert text.count(wait) == 1
    header.write_text(text.replace(wait, f"// {wait}"))
    found = compile_source(sources / source.file, source.only_arch, source.defines(Shape()), "a")
    assert any("wgmma.mma_async instructions are serialized" in line for line in serialised(found))


@needs_nvrtc
@pytest.mark.parametrize(
    ("source", "struct", "size", "shape"),
    [
        *((SCAN, "Shared", scan_shared_bytes(SCAN.heads(shape)), shape) for shape in SHAPES[:3]),
        (PREPARE, "Prepared", 4 * PREPARED_FLOATS, Shape()),
        *((source, "Shared", tensor_shared_bytes(source), Shape()) for source in TENSOR_SOURCES),
        *((TENSOR_PREPARE, "Chunk", tensor_chunk_bytes(shape), shape) for shape in (*SHAPES[:3], Shape(3, 15))),
    ],
    ids=lambda value: label(value) if isinstance(value, Source) else str(value),
)
def test_layout_in_python_is_that_of_the_struct(
    source: Source, struct: str, size: int, shape: Shape, sources: Path
) -> None:
    file, arch, suffix = sources / source.file, source.only_arch or 80, "a" if source.only_arch else ""
    text = file.read_text()
    file.write_text(f"{text}\nstatic_assert(sizeof({struct}) == {size});")
    compile_source(file, arch, source.defines(shape), suffix)
    file.write_text(f"{text}\nstatic_assert(sizeof({struct}) == {size + 4});")
    with pytest.raises(CompileError, match="static assertion failed"):
        compile_source(file, arch, source.defines(shape), suffix)


@needs_nvrtc
def test_error_names_file_and_line(sources: Path) -> None:
    file = sources / SEQUENTIAL.file
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, "int here = nowhere;"]))
    with pytest.raises(CompileError) as error:
        compile_source(file, 80, SEQUENTIAL.defines(Shape()))
    assert f'{file.name}({len(lines) + 1}): error: identifier "nowhere" is undefined' in str(error.value)


@needs_nvrtc
def test_spills_and_stack_are_seen(tmp_path: Path) -> None:
    """The guard itself is checked: one kernel holds more than its registers, one indexes a local array."""
    file = tmp_path / "planted.cu"
    file.write_text("""
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* x) {
    float held[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) held[i] = x[i * 1024];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i * 1024 + 1] = held[i] * held[63 - i];
}
extern "C" __global__ void stacks(float* x, int n) {
    float held[64];
    for (int i = 0; i < 64; ++i) held[i] = x[i];
    for (int i = 0; i < 64; ++i) x[i] = held[(i * n) % 64];
}
extern "C" __global__ void shares(float* x) {
    __shared__ float held[256];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = held[255 - threadIdx.x];
}
""")
    found = compile_source(file, 90, {}).resources
    assert set(found) == {"spills", "stacks", "shares"}
    assert found["spills"].spill_bytes > 0
    assert found["spills"].registers == 32
    assert found["stacks"].stack_bytes >= 256
    assert found["shares"].shared_bytes == 1024
    assert found["shares"].spill_bytes == found["shares"].stack_bytes == 0
