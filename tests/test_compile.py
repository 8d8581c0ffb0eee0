"""The kernels' guard on a machine without a GPU: every source compiles for every architecture, within bounds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernels import Shape
from kernels.compile import (
    CUDA_SOURCES,
    PREPARE,
    REFERENCE,
    SCAN,
    SEQUENTIAL,
    SOURCES,
    CompileError,
    Source,
    compile_source,
    compiled,
    scan_shared_bytes,
)
from kernels.dispatch import CHUNKED_MIN_SHARED

ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
SHAPES = (*(Shape(16, 16 * group) for group in (1, 2, 3, 4)), Shape(16, 48, "grouped"))

BLOCKS = {  # threads of a block, and blocks that must fit an SM
    SEQUENTIAL: lambda heads: (128, 1),
    PREPARE: lambda heads: (128, 4),
    SCAN: lambda heads: (256, 2 if heads < 3 else 1),
    REFERENCE: lambda heads: (256, 1),
}


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
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.entry)
def test_compiles_within_bounds(source: Source, arch: int, shape: Shape) -> None:
    if arch < source.lowest_arch:
        with pytest.raises(CompileError, match=f"{source.file} needs sm_{source.lowest_arch} or later"):
            compiled(source, shape, arch)
        return
    cubin = compiled(source, shape, arch)
    assert cubin.code.startswith(b"\x7fELF")
    assert set(cubin.resources) == {source.entry}
    used = cubin.resources[source.entry]
    threads, blocks = BLOCKS[source](source.heads(shape))
    assert used.spill_bytes == 0
    assert used.stack_bytes == 0
    assert 0 < used.registers <= min(255, 65_536 // (threads * blocks))
    assert used.shared_bytes <= 48 * 1024  # what a block has without asking


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape}-{shape.head_map}")
def test_scan_fits_the_seeds_shared_memory(shape: Shape) -> None:
    assert scan_shared_bytes(SCAN.heads(shape)) <= CHUNKED_MIN_SHARED == 95_948


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the CUDA sources, to be changed."""
    return Path(shutil.copytree(CUDA_SOURCES, tmp_path / "cuda"))


@needs_nvrtc
@pytest.mark.parametrize("shape", SHAPES[:3], ids=str)
def test_layout_in_python_is_that_of_the_struct(shape: Shape, sources: Path) -> None:
    file, size = sources / SCAN.file, scan_shared_bytes(SCAN.heads(shape))
    text = file.read_text()
    file.write_text(f"{text}\nstatic_assert(sizeof(Shared) == {size});")
    compile_source(file, 80, SCAN.defines(shape))
    file.write_text(f"{text}\nstatic_assert(sizeof(Shared) == {size + 4});")
    with pytest.raises(CompileError, match="static assertion failed"):
        compile_source(file, 80, SCAN.defines(shape))


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
