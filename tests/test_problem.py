"""What a problem refuses, and that the message says which argument, what came and what is wanted."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernels import Problem, ProblemError, Recurrence, Shape, recurrence, recurrences, register

SHAPE = Shape(2, 4)


def arrays(tokens: int = 3) -> dict[str, Any]:
    heads = SHAPE.value_heads
    return {
        "qkv": np.zeros((tokens, SHAPE.row), np.float32),
        "gate": np.zeros((tokens, heads), np.float32),
        "beta": np.zeros((tokens, heads), np.float32),
        "state": np.zeros((128, heads, 128), np.float32),
        "key_heads": SHAPE.key_heads,
    }


def on_gpu(array: np.ndarray, device: int = 0) -> Any:
    """What a CuPy array looks like to `Problem`."""
    return SimpleNamespace(
        __cuda_array_interface__={},
        device=SimpleNamespace(id=device),
        dtype=array.dtype,
        shape=array.shape,
        ndim=array.ndim,
        flags=SimpleNamespace(c_contiguous=array.flags.c_contiguous),
        strides=array.strides,
    )


def test_a_good_problem_is_taken() -> None:
    problem = Problem(**arrays())
    assert (problem.shape, problem.tokens, problem.device, problem.on_gpu) == (SHAPE, 3, "host", False)


def test_arrays_of_one_gpu_are_taken() -> None:
    given = {name: on_gpu(a, 1) if isinstance(a, np.ndarray) else a for name, a in arrays().items()}
    assert (Problem(**given).device, Problem(**given).on_gpu) == ("cuda:1", True)


@pytest.mark.parametrize(
    ("name", "change", "came", "wanted"),
    [
        *((name, lambda a: a.astype(np.float64), "float64", "float32") for name in ("qkv", "gate", "beta", "state")),
        ("qkv", lambda a: a.astype(np.float16), "float16", "float32"),
        ("qkv", lambda a: np.zeros((3, 1023), np.float32), "(3, 1023)", "[T, (2 HK + HV) 128] = (3, 1024)"),
        ("qkv", lambda a: a[:2], "(2, 1024)", "(3, 1024)"),
        ("qkv", lambda a: a[None], "(1, 3, 1024)", "(3, 1024)"),
        ("gate", lambda a: a[0], "(4,)", "[T, HV]"),
        ("gate", lambda a: a[None], "(1, 3, 4)", "[T, HV]"),
        ("beta", lambda a: a[:, :2], "(3, 2)", "[T, HV] = (3, 4)"),
        ("state", lambda a: a.transpose(1, 0, 2), "(4, 128, 128)", "[128, HV, 128] = (128, 4, 128)"),
        ("qkv", lambda a: np.asfortranarray(a), "strides (4, 12)", "C-contiguous"),
        ("gate", lambda a: np.zeros((3, 8), np.float32)[:, ::2], "strides (32, 8)", "C-contiguous"),
        ("beta", lambda a: np.zeros((6, 4), np.float32)[::2], "strides (32, 4)", "C-contiguous"),
        ("state", lambda a: np.swapaxes(a, 0, 2), "strides (4, 512, 2048)", "C-contiguous"),
        *((name, lambda a: a.tolist(), "list", "a NumPy or a CuPy array") for name in ("qkv", "gate", "beta", "state")),
        ("qkv", lambda a: None, "NoneType", "a NumPy or a CuPy array"),
        ("key_heads", lambda a: 3, "4, no multiple of key_heads = 3", "same number of value heads"),
        ("key_heads", lambda a: 0, "0", "a positive integer"),
        ("key_heads", lambda a: -2, "-2", "a positive integer"),
        ("key_heads", lambda a: 2.0, "2.0", "a positive integer"),
        ("key_heads", lambda a: True, "True", "a positive integer"),
        ("key_heads", lambda a: "2", "'2'", "a positive integer"),
        ("head_map", lambda a: "gguf", "'gguf'", "one of tiled, grouped"),
        ("head_map", lambda a: None, "None", "one of tiled, grouped"),
    ],
)  # fmt: skip
def test_a_bad_argument_is_named(name: str, change: Callable[[Any], Any], came: str, wanted: str) -> None:
    given = arrays()
    given[name] = change(given.get(name))
    with pytest.raises(ProblemError) as caught:
        Problem(**given)
    for part in (name, came, wanted):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["qkv", "gate", "beta", "state"])
@pytest.mark.parametrize("others", [None, 1], ids=["host", "other GPU"])
def test_arrays_of_two_devices_are_refused(name: str, others: int | None) -> None:
    given = arrays()
    for other in ("qkv", "gate", "beta", "state"):
        if other == name:
            given[other] = on_gpu(given[other], 0)
        elif others is not None:
            given[other] = on_gpu(given[other], others)
    with pytest.raises(ProblemError, match=f"one device.*{name}: cuda:0"):
        Problem(**given)


@pytest.mark.parametrize(
    ("key_heads", "value_heads", "text"),
    [
        (16, 0, "value_heads is 0; it must be a positive integer"),
        (16, 24, "value_heads is 24, no multiple of key_heads = 16"),
        (16, 8, "value_heads is 8, no multiple of key_heads = 16"),
    ],
)
def test_head_counts_that_do_not_fit_are_refused(key_heads: int, value_heads: int, text: str) -> None:
    with pytest.raises(ProblemError, match=text):
        Shape(key_heads, value_heads)


def test_head_maps() -> None:
    assert Shape(2, 6, "tiled").key_head_of().tolist() == [0, 1, 0, 1, 0, 1]
    assert Shape(2, 6, "grouped").key_head_of().tolist() == [0, 0, 0, 1, 1, 1]
    assert Shape(2, 2, "tiled").key_head_of().tolist() == Shape(2, 2, "grouped").key_head_of().tolist()
    assert (Shape(16, 48).group, Shape(16, 48).row, str(Shape(16, 48))) == (3, 10240, "16x48x128")


@pytest.mark.parametrize(
    ("out", "state", "text"),
    [
        ((2, 4, 128), (128, 4, 128), "out has shape (2, 4, 128); [T, HV, 128] = (3, 4, 128) is wanted"),
        ((3, 4, 128), (4, 128, 128), "state has shape (4, 128, 128); [128, HV, 128] = (128, 4, 128) is wanted"),
    ],
)  # fmt: skip
def test_results_of_another_shape_are_refused(out: tuple[int, ...], state: tuple[int, ...], text: str) -> None:
    problem = Problem(**arrays())
    with pytest.raises(ProblemError, match=re.escape(text)):
        problem.check_out(np.zeros(out, np.float32), np.zeros(state, np.float32))


def test_results_on_another_device_are_refused() -> None:
    problem = Problem(**arrays())
    out = np.zeros((3, 4, 128), np.float32)
    with pytest.raises(ProblemError, match="out lies on cuda:0; it must be on host, where qkv is"):
        problem.check_out(on_gpu(out), problem.state)
    problem.check_out(out, problem.state)


def test_head_and_slice_are_views() -> None:
    problem = Problem(**arrays(5))
    assert problem.head(2).tokens == 2
    assert np.shares_memory(problem.head(2).qkv, problem.qkv)
    state = np.ones_like(problem.state)
    part = problem.slice(1, 4, state)
    assert (part.tokens, part.state is state) == (3, True)
    for tokens in (-1, 6):
        with pytest.raises(ProblemError, match=f"tokens is {tokens}; the problem has 0 to 5"):
            problem.head(tokens)


def test_the_table_of_recurrences() -> None:
    assert [r.name for r in recurrences("host")][:2] == ["host-sequential", "host-chunked"]
    with pytest.raises(ValueError, match="recurrence is 'chonked'; there are host-sequential, host-chunked"):
        recurrence("chonked")
    with pytest.raises(ValueError, match="name is 'host-chunked', which is registered already"):
        register(recurrence("host-chunked"))
    with pytest.raises(ValueError, match="platform is 'rocm'; it must be 'cuda' or 'host'"):
        register(Recurrence("other", "rocm", recurrence("host-chunked").enqueue))


def test_a_recurrence_refuses_what_it_cannot_run() -> None:
    enqueue = recurrence("host-sequential").enqueue
    problem = Problem(**arrays())
    with pytest.raises(ProblemError, match="qkv lies on host; there takes CuPy arrays"):
        Recurrence("there", "cuda", enqueue)(problem)
    with pytest.raises(ProblemError, match="never cannot run here: it is Monday"):
        Recurrence("never", "host", enqueue, unsupported=lambda problem: "it is Monday")(problem)
