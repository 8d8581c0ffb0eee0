"""Fingerprints of source, machine code and launching code: what changes them, and how a run keeps them."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernels import Shape, fingerprint
from kernels.compile import CUDA_SOURCES, SEQUENTIAL, TENSOR_SCAN_WGMMA, Cubin, compiled
from suite import builds
from suite.builds import builds as made
from tests.test_compile import why_not
from tests.test_suite import ROOT

needs_nvrtc = pytest.mark.skipif(bool(why_not()), reason=why_not() or "NVRTC")


def elf(**sections: bytes) -> bytes:
    """A small ELF file: a head, the sections' bytes, their names, and the table of sections."""
    parts = {"": b"", **{f".{name.replace('_', '.', 1)}": data for name, data in sections.items()}}
    names = "".join(f"{name}\0" for name in [*parts, ".shstrtab"]).encode()
    parts[".shstrtab"] = names
    body, heads = b"", b""
    for name, data in parts.items():
        place = names.index(f"\0{name}\0".encode()) + 1 if name else 0
        heads += struct.pack("<2I4Q2I2Q", place, 1, 0, 0, 64 + len(body), len(data), 0, 0, 0, 0)
        body += data
    head = b"\x7fELF\x02\x01".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(body))
    return head.ljust(0x3A, b"\0") + struct.pack("<3H", 64, len(parts), len(parts) - 1) + body + heads


def test_machine_code_is_the_text_sections_alone() -> None:
    one = elf(text_a=b"code", nv_info=b"notes")
    assert fingerprint.sections(one)[".text.a"] == b"code"
    assert fingerprint.machine_code(one) == fingerprint.machine_code(elf(nv_info=b"others", text_a=b"code", more=b"x"))
    others = (elf(text_a=b"cod", x=b"e"), elf(text_b=b"code"), elf(text_a=b"code", text_b=b""))
    assert len({fingerprint.machine_code(other) for other in (one, *others)}) == 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no 64-bit little-endian ELF file"),
        (b"MZ" + bytes(100), "no 64-bit little-endian ELF file"),
        (elf(text_a=b"code")[:-70], "is cut short"),
        (elf(nv_info=b"notes"), "has no section .text; it has , .nv.info, .shstrtab"),
    ],
)
def test_what_is_no_cubin_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        fingerprint.machine_code(data)


def test_a_source_is_known_by_all_that_it_includes(tmp_path: Path) -> None:
    shutil.copytree(CUDA_SOURCES, tmp_path, dirs_exist_ok=True)
    file, defines = tmp_path / SEQUENTIAL.file, SEQUENTIAL.defines(Shape())
    own = fingerprint.source(file, defines)
    assert own == SEQUENTIAL.sha256(Shape())
    assert own != SEQUENTIAL.sha256(Shape(16, 32))
    (tmp_path / "split.cuh").write_text("// not included by it\n")
    assert fingerprint.source(file, defines) == own
    header = tmp_path / "common.cuh"
    header.write_text(header.read_text() + "\n")
    assert fingerprint.source(file, defines) != own


def test_headers_of_headers_count(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n')
    (tmp_path / "b.cuh").write_text('  #  include "c.cuh"\n#include "a.cu"\n#include <cuda.h>\n')
    (tmp_path / "c.cuh").write_text("int c;")
    own = fingerprint.source(tmp_path / "a.cu", {})
    (tmp_path / "c.cuh").write_text("int d;")
    assert fingerprint.source(tmp_path / "a.cu", {}) != own


def test_the_launcher_is_this_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(fingerprint.__file__).parent, tmp_path / "kernels")
    monkeypatch.setattr(fingerprint, "__file__", str(tmp_path / "kernels/fingerprint.py"))
    own = fingerprint.launcher.__wrapped__()
    assert own == fingerprint.launcher()
    table = next((tmp_path / "kernels/tables").iterdir())
    table.write_text(table.read_text() + " ")
    changed = fingerprint.launcher.__wrapped__()
    (tmp_path / "kernels/spans.py").write_text("")
    assert len({own, changed, fingerprint.launcher.__wrapped__()}) == 3


@needs_nvrtc
def test_the_same_source_is_the_same_machine_code_and_another_is_another(tmp_path: Path) -> None:
    from kernels.compile import compile_source

    shutil.copytree(CUDA_SOURCES, tmp_path, dirs_exist_ok=True)
    file, defines = tmp_path / SEQUENTIAL.file, SEQUENTIAL.defines(Shape())
    own = compile_source(file, 90, defines).sha256
    assert own == compiled(SEQUENTIAL, Shape(), 90).sha256
    file.write_text(f"// a comment changes the source and not what it becomes\n{file.read_text()}")
    assert fingerprint.source(file, defines) != SEQUENTIAL.sha256(Shape())
    assert compile_source(file, 90, defines).sha256 == own
    assert compile_source(file, 90, {**defines, "GDN_TILED": 0}).sha256 != own
    assert compile_source(file, 80, defines).sha256 != own


SOURCES = """
from types import SimpleNamespace
import kernels.tensor
from kernels import recurrences
for arch in (80, 90):
    kernels.tensor.current_facts = lambda: SimpleNamespace(compute_capability=arch)
    for one in recurrences("cuda"):
        print(arch, one.name, *(f"{source.file}{source.suffix}" for source in one.sources()))
"""


@needs_nvrtc
def test_every_recurrence_of_cuda_says_which_sources_it_runs() -> None:
    """In a process of its own, as CUDA's recurrences are registered where they are imported."""
    done = subprocess.run([sys.executable, "-c", SOURCES], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = {tuple(line.split()[:2]): line.split()[2:] for line in done.stdout.splitlines()}
    assert len(told) == 14
    assert all(told.values())
    assert told["90", "tensor"] == ["tensor_prepare.cu", "tensor_scan.cua", "tensor_small.cua"]
    assert told["80", "tensor"] == ["tensor_prepare.cu", "tensor_scan.cu", "tensor_small.cu"]
    assert told["90", "tensor-sm80"] == told["80", "tensor"]
    assert told["90", "sequential-tuned"] == ["sequential_tuned.cu", "sequential.cu"]
    assert {*told["90", "tensor"], *told["90", "chunked"], *told["90", "sequential-tuned"]} == {*told["90", "auto"]}


def test_the_builds_of_a_run_name_who_launches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cubins = {
        (SEQUENTIAL, Shape(), 90): Cubin(elf(text_a=b"one"), ""),
        (TENSOR_SCAN_WGMMA, Shape(16, 32, "grouped"), 90): Cubin(elf(text_a=b"two"), ""),
    }
    users: dict[str, Any] = {"sequential": (SEQUENTIAL,), "auto": (SEQUENTIAL, TENSOR_SCAN_WGMMA), "host": ()}
    known = next(iter(__import__("kernels").recurrences("host")))
    monkeypatch.setattr(builds, "built", lambda: cubins)
    monkeypatch.setattr(builds, "recurrence", lambda name: replace(known, sources=lambda: users[name]))
    one, two = made(list(users))
    assert (one.kernel, one.arch, one.recurrences) == ("gdn_sequential", "sm_90", ("sequential", "auto"))
    assert (two.file, two.arch, two.shape, two.head_map) == ("tensor_scan.cu", "sm_90a", "16x32x128", "grouped")
    assert two.recurrences == ("auto",)
    assert one.code_sha256 == fingerprint.machine_code(elf(text_a=b"one"))
    assert one.source_sha256 == SEQUENTIAL.sha256(Shape())
    monkeypatch.setattr(builds, "built", dict)
    assert made(["no recurrence is asked where nothing was compiled"]) == ()
