"""The problem: one layer's recurrence over one sequence, and the arrays it reads.

Per token t and value head h, with S the D x D state of the head, k and q the rows of its key head::

    S <- exp(gate) S;  d = beta (v - S^T k);  S <- S + k d^T;  out = D^-0.5 S^T q

This is the gated delta rule of Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with
Delta Rule", arXiv:2412.06464, equation 10, in the layout that LLM engines keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
"""A NumPy or a CuPy array."""

HEAD_DIM = 128
"""D, the only head dimension of the models this suite is about (Qwen3-Next, Qwen3.5)."""

HEAD_MAPS = ("tiled", "grouped")
"""tiled: value head h reads key head h % HK (GGUF); grouped: h // (HV / HK) (transformers)."""


class ProblemError(ValueError):
    """An argument of a problem is not what the recurrences take; the message names it."""


@dataclass(frozen=True)
class Shape:
    """The head counts and the head map of a layer, that is, all that a kernel is compiled for.

    Attributes:
        key_heads: HK, the number of key (and query) heads.
        value_heads: HV, a multiple of HK.
        head_map: which key head a value head reads, one of `HEAD_MAPS`.
    """

    key_heads: int = 16
    value_heads: int = 48
    head_map: str = "tiled"

    def __post_init__(self) -> None:
        for name in ("key_heads", "value_heads"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
                raise ProblemError(f"{name} is {count!r}; it must be a positive integer")
        if self.value_heads % self.key_heads:
            raise ProblemError(
                f"value_heads is {self.value_heads}, no multiple of key_heads = {self.key_heads}; "
                "each key head must serve the same number of value heads"
            )
        if self.head_map not in HEAD_MAPS:
            raise ProblemError(f"head_map is {self.head_map!r}; it must be one of {', '.join(HEAD_MAPS)}")

    @property
    def group(self) -> int:
        """HV / HK, the value heads that read one key head."""
        return self.value_heads // self.key_heads

    @property
    def row(self) -> int:
        """Floats in one token's row of `qkv`."""
        return (2 * self.key_heads + self.value_heads) * HEAD_DIM

    def key_head_of(self) -> np.ndarray:
        """The key head of each value head, [HV] integers."""
        heads = np.arange(self.value_heads)
        return heads % self.key_heads if self.head_map == "tiled" else heads // self.group

    def __str__(self) -> str:
        return f"{self.key_heads}x{self.value_heads}x{HEAD_DIM}"


class Problem:
    """One sequence's inputs, checked once so that a timed call need not.

    Args:
        qkv: [T, (2 HK + HV) D] float32; a row is q (HK x D), k (HK x D), v (HV x D). q and k are
            L2-normalised per head; v is not.
        gate: [T, HV] float32, the natural logarithm of the decay; at most 0, -inf is legal.
        beta: [T, HV] float32, in [0, 1] (up to 2 where negative eigenvalues are allowed).
        state: [D, HV, D] float32: key row, value head, value column.
        key_heads: HK. HV is read from the gate.
        head_map: "tiled" (value head h reads key head h % HK) or "grouped" (h // (HV / HK)).

    All arrays are NumPy arrays, or all are CuPy arrays of one device; each is C-contiguous.

    Raises:
        ProblemError: an array has another type, dtype, shape, layout or device, or the head counts or the
            head map do not fit; the message names the argument, what came and what is wanted.
    """

    def __init__(
        self, qkv: Array, gate: Array, beta: Array, state: Array, key_heads: int, head_map: str = "tiled"
    ) -> None:
        arrays = {"qkv": qkv, "gate": gate, "beta": beta, "state": state}
        kinds = {name: _kind(name, array) for name, array in arrays.items()}
        if len(set(kinds.values())) > 1:
            raise ProblemError(
                "qkv, gate, beta and state must lie on one device; they are on "
                + ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
            )
        if gate.ndim != 2:
            raise ProblemError(f"gate has shape {gate.shape}; [T, HV] is wanted")
        tokens, value_heads = gate.shape
        self.shape = Shape(key_heads, value_heads, head_map)
        self.tokens: int = tokens
        self.device: str = kinds["qkv"]
        _check_array("qkv", qkv, (tokens, self.shape.row), "[T, (2 HK + HV) 128]")
        _check_array("gate", gate, (tokens, value_heads), "[T, HV]")
        _check_array("beta", beta, (tokens, value_heads), "[T, HV]")
        _check_array("state", state, (HEAD_DIM, value_heads, HEAD_DIM), "[128, HV, 128]")
        self.qkv, self.gate, self.beta, self.state = qkv, gate, beta, state

    @property
    def on_gpu(self) -> bool:
        return self.device != "host"

    def check_out(self, out: Array, state: Array) -> None:
        """Refuse an `out` that is not [T, HV, D] or a `state` that is not [D, HV, D], here, in float32."""
        heads = self.shape.value_heads
        for name, array, wanted, words in (
            ("out", out, (self.tokens, heads, HEAD_DIM), "[T, HV, 128]"),
            ("state", state, (HEAD_DIM, heads, HEAD_DIM), "[128, HV, 128]"),
        ):
            kind = _kind(name, array)
            if kind != self.device:
                raise ProblemError(f"{name} lies on {kind}; it must be on {self.device}, where qkv is")
            _check_array(name, array, wanted, words)

    def map(self, place: Callable[[Array], Array]) -> Problem:
        """The problem with each array put elsewhere, such as `problem.map(cupy.asarray)`."""
        qkv, gate, beta, state = (place(array) for array in (self.qkv, self.gate, self.beta, self.state))
        return Problem(qkv, gate, beta, state, self.shape.key_heads, self.shape.head_map)

    def head(self, tokens: int) -> Problem:
        """The problem of the first `tokens` tokens, as views."""
        if not 0 <= tokens <= self.tokens:
            raise ProblemError(f"tokens is {tokens}; the problem has 0 to {self.tokens}")
        return self.slice(0, tokens, self.state)

    def slice(self, start: int, stop: int, state: Array) -> Problem:
        """The tokens from `start` up to `stop`, as views, entered with another state."""
        rows = slice(start, stop)
        return Problem(
            self.qkv[rows],
            self.gate[rows],
            self.beta[rows],
            state,
            self.shape.key_heads,
            self.shape.head_map,
        )


def _kind(name: str, array: Array) -> str:
    if isinstance(array, np.ndarray):
        return "host"
    if hasattr(array, "__cuda_array_interface__") and hasattr(array, "device"):
        return f"cuda:{getattr(array.device, 'id', array.device)}"
    raise ProblemError(f"{name} is a {type(array).__name__}; a NumPy or a CuPy array is wanted")


def _check_array(name: str, array: Array, shape: tuple[int, ...], words: str) -> None:
    if array.dtype != np.float32:
        raise ProblemError(f"{name} has dtype {array.dtype}; float32 is wanted")
    if tuple(array.shape) != shape:
        raise ProblemError(f"{name} has shape {tuple(array.shape)}; {words} = {shape} is wanted")
    if not array.flags.c_contiguous:
        raise ProblemError(
            f"{name} has strides {array.strides}; a C-contiguous array is wanted (ascontiguousarray makes one)"
        )
