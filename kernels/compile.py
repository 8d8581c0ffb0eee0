"""Compile the CUDA sources with NVRTC. Needs no GPU, so a machine without one can still guard the kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels import fingerprint
from kernels.problem import Shape

CUDA_SOURCES = Path(__file__).parent / "cuda"

CHUNK = 32
"""Tokens in a chunk of the chunked recurrence (`CHUNK` in chunked.cuh)."""

SUPER_BLOCK = 2048
"""Tokens that one pair of launches of the chunked recurrence works on; bounds its scratch."""


class CompileError(RuntimeError):
    """NVRTC refused a source; the message is its log, which names file and line."""


@dataclass(frozen=True)
class Source:
    """A CUDA source and what it may be compiled for.

    Attributes:
        file: its name in `kernels/cuda`.
        entry: the kernel in it.
        block_heads: the most value heads a block holds, or 0 where the kernel does not ask.
        lowest_arch: the lowest compute capability, 75 for 7.5.
        only_arch: the one compute capability whose own instructions (such as wgmma of sm_90a) it uses, or 0.
    """

    file: str
    entry: str
    block_heads: int = 0
    lowest_arch: int = 75
    only_arch: int = 0

    def unsupported(self, arch: int) -> str | None:
        """Why it cannot be compiled for a compute capability, or None where it can."""
        if self.only_arch and arch != self.only_arch:
            return f"needs sm_{self.only_arch}a; this is sm_{arch}"
        if arch < self.lowest_arch:
            return f"needs sm_{self.lowest_arch} or later; this is sm_{arch}"
        return None

    @property
    def suffix(self) -> str:
        """What follows the number of the architecture: "a" where its own instructions are used."""
        return "a" if self.only_arch else ""

    def sha256(self, shape: Shape) -> str:
        """Fingerprint of the source for a shape, with all that it includes."""
        return fingerprint.source(CUDA_SOURCES / self.file, self.defines(shape))

    def heads(self, shape: Shape) -> int:
        """Value heads of one key head that a block holds: the largest divisor of HV / HK within bounds."""
        return max(n for n in range(1, max(self.block_heads, 1) + 1) if shape.group % n == 0)

    def defines(self, shape: Shape) -> dict[str, int]:
        """The compile-time constants of the source for this shape."""
        return {
            "GDN_KEY_HEADS": shape.key_heads,
            "GDN_VALUE_HEADS": shape.value_heads,
            "GDN_TILED": int(shape.head_map == "tiled"),
            "GDN_BLOCK_HEADS": self.heads(shape),
            "GDN_SUPER_BLOCK": SUPER_BLOCK,
            **({"GDN_WGMMA": 1} if self.only_arch else {}),
        }


SEQUENTIAL = Source("sequential.cu", "gdn_sequential", block_heads=4)
SEQUENTIAL_TUNED = Source("sequential_tuned.cu", "gdn_sequential_tuned", block_heads=3)
PREPARE = Source("chunked_prepare.cu", "gdn_chunked_prepare", lowest_arch=80)
SCAN = Source("chunked_scan.cu", "gdn_chunked_scan", block_heads=3, lowest_arch=80)
TENSOR_PREPARE = Source("tensor_prepare.cu", "gdn_tensor_prepare", lowest_arch=80)
TENSOR_SCAN = Source("tensor_scan.cu", "gdn_tensor_scan", lowest_arch=80)
TENSOR_SCAN_WGMMA = Source("tensor_scan.cu", "gdn_tensor_scan", only_arch=90)
TENSOR_SMALL = Source("tensor_small.cu", "gdn_tensor_small", lowest_arch=80)
TENSOR_SMALL_WGMMA = Source("tensor_small.cu", "gdn_tensor_small", only_arch=90)
REFERENCE = Source("reference.cu", "gdn_reference")
# What the measuring needs; none depends on the shape.
STAMP = Source("stamp.cu", "gdn_stamp")
HOLD = Source("hold.cu", "gdn_hold")
CANARY_FMA = Source("canary_fma.cu", "gdn_canary_fma")
CANARY_COPY = Source("canary_copy.cu", "gdn_canary_copy")
COMPARE = Source("compare.cu", "gdn_compare")
SOURCES = (
    SEQUENTIAL,
    SEQUENTIAL_TUNED,
    PREPARE,
    SCAN,
    TENSOR_PREPARE,
    TENSOR_SCAN,
    TENSOR_SCAN_WGMMA,
    TENSOR_SMALL,
    TENSOR_SMALL_WGMMA,
    REFERENCE,
    STAMP,
    HOLD,
    CANARY_FMA,
    CANARY_COPY,
    COMPARE,
)


PREPARED_FLOATS = 2 * 20 * 32 + 3 * CHUNK
"""Floats of struct Prepared in chunked.cuh, of one (chunk, value head): two triangles by 20 pieces, three factors."""


def scan_shared_bytes(heads: int) -> int:
    """Dynamic shared memory of `gdn_chunked_scan`, bytes: the size of its struct Shared."""
    keys_and_queries = 3 * CHUNK * (128 + 4)
    pairs, columns = 4, 4 * heads
    return 4 * (keys_and_queries + heads * PREPARED_FLOATS + pairs * columns * 2 * (64 + 4))


TENSOR_SOURCES = (TENSOR_SCAN, TENSOR_SCAN_WGMMA, TENSOR_SMALL, TENSOR_SMALL_WGMMA)
"""Those whose blocks ask for `tensor_shared_bytes`."""

ROWS_BYTES = 2 * 2 * CHUNK * 128 * 2
"""Size of struct Rows in tensor.cuh: the keys and queries of a chunk as two FP16 each."""


_STATE_FACTORS_BYTES = 2 * 3 * 32 * 16 + 2 * CHUNK * 4 + 16
_OUTPUT_FACTORS_BYTES = 2 * 3 * 32 * 16 + CHUNK * 4 + 16
"""Sizes of struct StateFactors and OutputFactors in tensor.cuh."""


def tensor_chunk_bytes(shape: Shape) -> int:
    """Scratch of the tensor-core recurrence for a chunk, bytes: the size of struct Chunk in tensor.cuh."""
    factors = shape.value_heads * (_STATE_FACTORS_BYTES + _OUTPUT_FACTORS_BYTES)
    return -(-(shape.key_heads * ROWS_BYTES + factors) // 128) * 128


def tensor_output_groups(source: Source) -> int:
    """Groups of 128 threads of a block that finish outputs (`OUTPUT_GROUPS` in tensor_scan.cuh); one more walks."""
    return 2 if source.only_arch else 1


def tensor_shared_bytes(source: Source) -> int:
    """Dynamic shared memory of `gdn_tensor_scan` and `gdn_tensor_small`, bytes: the size of struct Shared."""
    stages, buffers, pairs = 4 if source.only_arch else 2, tensor_output_groups(source), 4
    stage = ROWS_BYTES + _STATE_FACTORS_BYTES + _OUTPUT_FACTORS_BYTES
    tokens, floats, barrier = CHUNK // 8 * 32 * 16, 3 * 4, 8
    size = stages * (stage + 2 * barrier) + buffers * pairs * (2 * tokens + floats + 2 * barrier)
    return -(-size // 16) * 16


@dataclass(frozen=True)
class Resources:
    """What ptxas reports of one kernel: registers per thread, bytes per thread or block."""

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Cubin:
    """Machine code of one source."""

    code: bytes
    log: str

    @property
    def sha256(self) -> str:
        """Fingerprint of the machine code: the same source with another one is another compiler."""
        return fingerprint.machine_code(self.code)

    @property
    def resources(self) -> dict[str, Resources]:
        """Per kernel, read from ptxas' report in the log."""
        found = {}
        for block in re.split(r"Compiling entry function ", self.log)[1:]:
            name = re.match(r"'(\w+)'", block)
            registers = re.search(r"Used (\d+) registers", block)
            if name is None or registers is None:
                raise CompileError(f"ptxas' report is not understood:\n{block}")
            stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", block)
            shared = re.search(r"(\d+) bytes smem", block)
            found[name[1]] = Resources(
                registers=int(registers[1]),
                stack_bytes=int(stack[1]) if stack else 0,
                spill_bytes=int(stack[2]) + int(stack[3]) if stack else 0,
                shared_bytes=int(shared[1]) if shared else 0,
            )
        return found


def compile_source(file: Path, arch: int, defines: Mapping[str, int], suffix: str = "") -> Cubin:
    """Compile one file to machine code.

    Args:
        file: the .cu file; its folder is searched for headers.
        arch: compute capability, such as 90.
        defines: preprocessor constants.
        suffix: "a" for the instructions that this architecture alone has.

    Raises:
        CompileError: NVRTC found an error; its log is the message.
    """
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(file.read_text(), file.name, (), ())
    options = [
        f"-arch=sm_{arch}{suffix}",
        "-std=c++17",
        f"-I{file.parent}",
        "--ptxas-options=-v",
        *(f"-D{name}={value}" for name, value in defines.items()),
    ]
    try:
        nvrtc.compileProgram(program, options)
        return Cubin(nvrtc.getCUBIN(program), nvrtc.getProgramLog(program))
    except nvrtc.NVRTCError as error:
        raise CompileError(f"{file.name} for sm_{arch}: {error}\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)


_BUILT: dict[tuple[Source, Shape, int], Cubin] = {}


def compiled(source: Source, shape: Shape, arch: int) -> Cubin:
    """The machine code of a source for a shape and a compute capability; compiled once a process.

    Raises:
        CompileError: the source is not for this compute capability, or NVRTC refuses it.
    """
    if (source, shape, arch) not in _BUILT:
        _BUILT[source, shape, arch] = _compile(source, shape, arch)
    return _BUILT[source, shape, arch]


def built() -> dict[tuple[Source, Shape, int], Cubin]:
    """What this process has compiled so far, by source, shape and compute capability."""
    return dict(_BUILT)


def _compile(source: Source, shape: Shape, arch: int) -> Cubin:
    if reason := source.unsupported(arch):
        raise CompileError(f"{source.file} {reason}")
    return compile_source(CUDA_SOURCES / source.file, arch, source.defines(shape), source.suffix)
