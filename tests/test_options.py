"""What a user mistypes is named, with the value and the mend."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from kernels import Shape
from kernels.detect import Gpu
from suite import options as o

NONE = Gpu(False, "no driver", present=False)
BROKEN = Gpu(False, "CuPy 14.2.0 for CUDA 13 finds no device", present=True)


def test_tokens_are_read_in_order_without_repeats() -> None:
    assert o.parse_tokens("128, 32,128") == (128, 32)


@pytest.mark.parametrize("text", ["0", "-5", "abc", "", "32,,64", "1.5", "²", "2147483648"])
def test_bad_tokens_are_named(text: str) -> None:
    with pytest.raises(o.OptionError, match="--gdn-tokens"):
        o.parse_tokens(text)


def test_shapes_are_read() -> None:
    assert o.parse_shape("16x48", "tiled") == o.parse_shape("16X48x128", "tiled") == Shape()
    assert o.parse_shape("2x8", "grouped") == Shape(2, 8, "grouped")


@pytest.mark.parametrize(
    ("text", "head_map"),
    [("16", "tiled"), ("16x40", "tiled"), ("16x48x64", "tiled"), ("0x0", "tiled"), ("16x48", "both")],
)
def test_bad_shapes_are_named(text: str, head_map: str) -> None:
    with pytest.raises(o.OptionError, match="--gdn-shape"):
        o.parse_shape(text, head_map)


def test_an_unknown_recurrence_is_named_with_those_there_are() -> None:
    with pytest.raises(o.OptionError, match="'fast'; here there are host-sequential, host-chunked"):
        o.parse_recurrences("host-chunked,fast", "host")


def test_an_unknown_family_is_named_with_those_there_are() -> None:
    with pytest.raises(o.OptionError, match="'odd'; there are normal, correlated"):
        o.parse_families("odd")


def test_without_a_gpu_the_host_is_chosen_with_one_line() -> None:
    assert o.choose_devices("auto", NONE) == (
        "host",
        (0,),
        "no GPU: no driver. The NumPy recurrences run instead.",
    )
    assert o.choose_devices("host", BROKEN) == ("host", (0,), "")


def test_a_gpu_that_cannot_be_used_is_never_passed_over_in_silence() -> None:
    for text, found in (("auto", BROKEN), ("0", NONE), ("0", BROKEN)):
        with pytest.raises(o.OptionError, match="the GPU cannot be used: .*--gdn-device host"):
            o.choose_devices(text, found)


@pytest.mark.parametrize("text", ["gpu", "-1", "", "0,", "0,host", "GPU 1"])
def test_a_bad_device_is_named(text: str) -> None:
    with pytest.raises(o.OptionError, match="--gdn-device"):
        o.choose_devices(text, NONE)


@pytest.fixture
def four_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(getDeviceCount=lambda: 4)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    monkeypatch.setattr(o, "card_uuid", lambda device: f"GPU-{device:04}")


@pytest.mark.usefixtures("four_cards")
@pytest.mark.parametrize(
    ("text", "devices"),
    [("auto", (0,)), ("2", (2,)), ("3,1,3", (3, 1)), ("all", (0, 1, 2, 3)), ("GPU-0002", (2,)), ("GPU-0001,1", (1,))],
)
def test_cards_are_chosen_by_index_or_uuid(text: str, devices: tuple[int, ...]) -> None:
    assert o.choose_devices(text, Gpu(True, "", present=True)) == ("cuda", devices, "")


@pytest.mark.usefixtures("four_cards")
@pytest.mark.parametrize(("text", "told"), [("4", "there are 4 GPUs"), ("GPU-9", "GPU-0000, GPU-0001")])
def test_a_card_that_is_not_there_is_named_with_those_that_are(text: str, told: str) -> None:
    with pytest.raises(o.OptionError, match=f"--gdn-device is {text}; .*{told}"):
        o.choose_devices(text, Gpu(True, "", present=True))


@pytest.mark.parametrize("text", ["-1", "x", "", "1e3", "²"])
def test_a_bad_lock_timeout_is_named(text: str) -> None:
    with pytest.raises(o.OptionError, match="--gdn-lock-timeout"):
        o.parse_lock_timeout(text)
