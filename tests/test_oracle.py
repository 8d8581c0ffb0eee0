"""The reference and the host recurrences against an independent truth: transformers' torch functions.

They run in float32 on the CPU: `torch_recurrent_gated_delta_rule` token by token, `torch_chunk_gated_delta_rule`
in chunks of 64. Install with pip install -e '.[oracle]'.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

from kernels import HEAD_MAPS, Problem, Shape, recurrence
from kernels.inputs import FAMILIES, make
from kernels.reference import error, reference_host, split

with warnings.catch_warnings():
    # What these packages warn of while they are imported is theirs; the tests run with warnings as errors.
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[oracle]'")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install -e '.[oracle]'")
    qwen3_next = pytest.importorskip(
        "transformers.models.qwen3_next.modeling_qwen3_next",
        reason="this transformers has no Qwen3-Next; 4.57 and later have",
    )

LIMIT = 1e-5


def oracle(name: str, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """out [T, HV, D] and state [D, HV, D] of one of transformers' functions, float32.

    They take [batch, T, heads, D], one key head per value head, and a state [batch, HV, D, D].
    """
    function = inspect.unwrap(getattr(qwen3_next, name))  # without a detour to kernels from elsewhere

    def tensor(array: np.ndarray) -> Any:
        return torch.from_numpy(np.array(array))[None]

    heads = problem.shape.key_head_of()
    q, k, v = split(problem)
    out, state = function(
        tensor(q[:, heads]),
        tensor(k[:, heads]),
        tensor(v),
        g=tensor(problem.gate),
        beta=tensor(problem.beta),
        initial_state=tensor(problem.state.transpose(1, 0, 2)),
        output_final_state=True,
        use_qk_l2norm_in_kernel=False,  # q and k are normalised already
    )
    return out[0].numpy(), state[0].numpy().transpose(1, 0, 2)


# The chunked function takes differences of running sums of gates in FP32, NaN from a gate of -inf on.
ORACLES = [
    (name, family)
    for name in ("torch_recurrent_gated_delta_rule", "torch_chunk_gated_delta_rule")
    for family in FAMILIES
    if (name, family) != ("torch_chunk_gated_delta_rule", "spikes")
]


@pytest.mark.parametrize(("name", "family"), ORACLES)
@pytest.mark.parametrize("tokens", [1, 2, 33, 64, 130])
@pytest.mark.parametrize("head_map", HEAD_MAPS)
def test_against_transformers(name: str, tokens: int, head_map: str, family: str) -> None:
    problem = make(Shape(4, 12, head_map), tokens, family)
    wanted = oracle(name, problem)
    for ours in (reference_host, recurrence("host-sequential"), recurrence("host-chunked")):
        for result, truth in zip(ours(problem), wanted, strict=True):
            assert error(result, truth).max <= LIMIT


def test_a_wrong_head_map_is_seen() -> None:
    problem = make(Shape(4, 12, "tiled"), 33)
    wanted = oracle("torch_recurrent_gated_delta_rule", problem)
    problem.shape = Shape(4, 12, "grouped")
    for result, truth in zip(reference_host(problem), wanted, strict=True):
        assert error(result, truth).max > 1e-2


def test_the_grouped_map_is_that_of_transformers() -> None:
    """transformers repeats each key head for consecutive value heads (repeat_interleave)."""
    shape = Shape(4, 12, "grouped")
    assert shape.key_head_of().tolist() == torch.arange(4).repeat_interleave(shape.group).tolist()
