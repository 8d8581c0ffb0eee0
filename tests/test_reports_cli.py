"""The command line's exit codes, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.dispatch import DeviceFacts, DispatchError
from reports.cli import main
from reports.doctor import device_lines, dispatch_lines
from results.store import save
from tests.fabricate import environment, record


def test_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(record(), tmp_path)
    assert main(["report", "--results", str(tmp_path)]) == 0
    assert capsys.readouterr() == (f"{tmp_path / 'report.html'}\n", "")
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_an_empty_folder_is_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.html"
    assert main(["report", "--results", str(tmp_path), "--out", str(out)]) == 4
    assert "nothing is stored" in capsys.readouterr().err
    assert out.exists()


def test_unreadable_files_are_5_and_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(record(), tmp_path)
    for name in ("a.json", "b.json"):
        (tmp_path / "history" / record().gpu_key / name).write_text("{")
    assert main(["report", "--results", str(tmp_path)]) == 5
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 2
    assert Path(said.out.strip()).exists()


@pytest.mark.parametrize("out", ["", "file/a.html"])
def test_an_unwritable_page_is_2(out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["report", "--results", str(tmp_path), "--out", str(tmp_path / out)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_results_folder_that_is_a_file_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["report", "--results", str(tmp_path / "file")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["paint"], ["report", "--colour"]])
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: gdn-bench" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out.startswith("gdn-bench ")


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(root: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("results.store.load", interrupt)
    assert main(["report", "--results", str(tmp_path)]) == 130


def test_doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(record(), tmp_path)
    assert main(["doctor", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "host-sequential" in said
    assert "stored     1 runs, 0 files that cannot be read" in said
    assert str(tmp_path / "history") in said


def test_doctor_names_the_device_and_the_dispatch() -> None:
    device = "\n".join(device_lines(environment(), ""))
    assert "NVIDIA H200, 132 SMs, compute capability 9.0, 143,771 MiB" in device
    assert "570.86.15" in device
    h200 = DeviceFacts("NVIDIA H200", 132, 90, 232_448, 233_472)
    lines = dispatch_lines(h200, {})
    assert sum("opt-in" in line for line in lines) == 11
    assert sum("  chunked  " in line for line in lines) == 8
    assert "chunked starts at 128" in "\n".join(lines)
    assert len(dispatch_lines(h200, {"STRATA_GDN_CHUNKED": "1"})) == 12
    with pytest.raises(DispatchError):
        dispatch_lines(h200, {"STRATA_GDN_CHUNKED": "yes"})
