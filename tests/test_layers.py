"""The house rule: kernels -> suite -> results -> reports, and each folder imports only from those before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("kernels", "suite", "results", "reports")
MODULES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))

FOREIGN = {
    "kernels": {"pytest", "pytest_benchmark", "pandas", "msgspec", "matplotlib", "jinja2"},
    "suite": {"pandas", "matplotlib", "jinja2"},
    "results": {"pytest", "pytest_benchmark", "matplotlib", "jinja2"},
    "reports": {"pytest", "pytest_benchmark"},
}
"""Libraries that a folder has no business with."""

OPTIONAL = {"cupy", "cupy_backends", "torch", "transformers", "fla"}
"""Libraries that may be missing, so that a module imports them inside of functions."""

NEEDS_GPU = {ROOT / "kernels/gpu.py", ROOT / "kernels/tensor.py"}
"""Modules that are imported only once CuPy has been found."""


def imports(tree: ast.AST, inside_functions: bool = True) -> Iterator[str]:
    """Top-level names of the packages that a module imports."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not inside_functions:
                pass
            case _:
                yield from imports(node, inside_functions)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_are_found_wherever_they_stand() -> None:
    tree = ast.parse("import a.b\nfrom c.d import e\nif x:\n  import f\ndef g():\n  import h\nfrom . import i")
    assert list(imports(tree)) == ["a", "c", "f", "h"]
    assert list(imports(tree, inside_functions=False)) == ["a", "c", "f"]


@pytest.mark.parametrize("layer", LAYERS)
def test_every_folder_has_modules(layer: str) -> None:
    assert any(path.is_relative_to(ROOT / layer) for path in MODULES)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_imports_point_backwards(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    later = LAYERS[LAYERS.index(layer) + 1 :]
    forbidden = {*later, "conftest", "tests", *FOREIGN[layer]}
    assert forbidden.isdisjoint(imports(ast.parse(path.read_text())))


@pytest.mark.parametrize("path", [path for path in MODULES if path not in NEEDS_GPU], ids=name)
def test_optional_libraries_are_imported_inside_functions(path: Path) -> None:
    assert OPTIONAL.isdisjoint(imports(ast.parse(path.read_text()), inside_functions=False))


def test_every_module_imports_without_the_optional_libraries() -> None:
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in MODULES if path not in NEEDS_GPU]
    program = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({sorted(OPTIONAL)}))  # None: the import fails
import kernels, suite, results, reports
for name in {names}:
    importlib.import_module(name)
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_who_reads_what_was_measured_takes_no_gpu() -> None:
    """CuPy is imported, and a context made, only once somebody asks for a recurrence."""
    program = """
import sys
import reports.cli, reports.page, results.compare
assert "cupy" not in sys.modules
import kernels
kernels.recurrences()
assert "cupy" in sys.modules
"""
    pytest.importorskip("cupy")
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_cuda_recurrences_follow_those_of_the_host_where_there_is_a_gpu() -> None:
    program = """
import kernels.detect
kernels.detect.gpu = lambda: kernels.detect.Gpu(True, "", True)
import kernels
mine = kernels.register(kernels.Recurrence("mine", "cuda", print))
print(*(one.name for one in kernels.recurrences()))
"""
    pytest.importorskip("cupy")
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    names = run.stdout.split()
    assert names[:2] == ["host-sequential", "host-chunked"]
    assert names[2:-1] == ["sequential", "sequential-tuned", "chunked", "dispatched", "tensor", "tensor-sm80", "auto"]
    assert names[-1] == "mine"
