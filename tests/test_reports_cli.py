"""The command line's exit codes, and one line for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernels.detect import gpu
from kernels.dispatch import DeviceFacts, DispatchError
from kernels.timetable import read_table
from reports.cli import main
from reports.doctor import AUTO_TOKENS, auto_lines, device_lines, dispatch_lines
from results.store import save
from tests.fabricate import environment, record, speed


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

    monkeypatch.setattr("results.series.opened", interrupt)
    assert main(["report", "--results", str(tmp_path)]) == 130


def test_doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(record(), tmp_path)
    assert main(["doctor", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "host-sequential" in said
    assert "stored     1 runs, 0 files that cannot be used" in said
    assert str(tmp_path / "history") in said


def test_doctor_names_the_device_and_the_dispatch() -> None:
    device = "\n".join(device_lines(environment(), ""))
    assert "NVIDIA H200, 132 SMs, compute capability 9.0, 143,771 MiB" in device
    assert "570.86.15" in device
    h200 = DeviceFacts("NVIDIA H200", 132, 90, 232_448, 233_472)
    lines = dispatch_lines(h200, {})
    assert sum("opt-in" in line for line in lines) == 16
    assert sum("  chunked  " in line for line in lines) == 8
    assert "chunked starts at 128" in "\n".join(lines)
    assert len(dispatch_lines(h200, {"STRATA_GDN_CHUNKED": "1"})) == 17
    with pytest.raises(DispatchError):
        dispatch_lines(h200, {"STRATA_GDN_CHUNKED": "yes"})


def test_doctor_says_what_auto_would_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h200 = DeviceFacts("NVIDIA H200", 132, 90, 232_448, 233_472)
    head, *lines = auto_lines((), h200, ("sequential", "sequential-tuned", "tensor"))
    assert head.startswith("auto: no table of 16x48 tiled heads for NVIDIA H200 with 132 SMs")
    assert [line.split()[2] for line in lines] == ["sequential-tuned"] * 3 + ["tensor"] * 6
    assert len(lines) == len(AUTO_TOKENS) == 9
    assert not any("no table" in line for line in lines)


@pytest.mark.skipif(gpu().usable, reason="there is a GPU")
def test_doctor_says_in_a_line_that_auto_is_for_gpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--results", str(tmp_path)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("auto")] == [
        "auto: none, as it is for GPUs"
    ]


TIMED = tuple(
    speed(recurrence=name, tokens=tokens, median_ns=ns)
    for name, tokens, ns in (
        ("sequential", 32, 9_000.0),
        ("sequential", 64, 15_900.0),
        ("tensor", 32, 12_000.0),
        ("tensor", 64, 14_200.0),
    )
)


def test_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(record(cases=TIMED), tmp_path)
    out = tmp_path / "new" / "a.json"
    assert main(["table", "--results", str(tmp_path), "--out", str(out)]) == 0
    assert capsys.readouterr() == (f"{out}\nfrom      1 tokens  sequential\nfrom     53 tokens  tensor\n", "")
    assert read_table(out).median_ns["tensor"] == {32: 12_000.0, 64: 14_200.0}
    assert [file.name for file in out.parent.iterdir()] == ["a.json"]


def test_a_table_goes_where_auto_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernels.timetable.FOLDER", tmp_path / "tables")
    save(record(cases=TIMED), tmp_path)
    assert main(["table", "--results", str(tmp_path), "--run", record().run_id]) == 0
    written = tmp_path / "tables" / "nvidia-h200-132sm-cc90-16x48-tiled.json"
    assert capsys.readouterr().out.splitlines()[0] == str(written)
    assert written.exists()


def test_a_table_of_changed_source_is_written_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(record(environment=environment(dirty=True)), tmp_path)
    out = tmp_path / "a.json"
    assert main(["table", "--results", str(tmp_path), "--out", str(out)]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "warning: 20261130T051500Z-0123abcd was measured with changes to commit 0123456789" in line
    assert read_table(out).source.dirty


@pytest.mark.parametrize("overrides", [None, {"status": "partial"}, {"environment": environment(gpu=None)}])
def test_a_table_of_no_complete_record_of_a_gpu_is_4(
    overrides: dict[str, Any] | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if overrides is not None:
        save(record(**overrides), tmp_path)
    assert main(["table", "--results", str(tmp_path), "--out", str(tmp_path / "a.json")]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "no complete record of a GPU" in line
    assert not (tmp_path / "a.json").exists()


def test_a_table_of_a_red_record_an_unknown_run_and_an_unwritable_file_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    red = speed(outcome="red", reason="no time: accuracy is red", median_ns=None)
    save(record(cases=(speed(), red)), tmp_path / "red")
    save(record(), tmp_path / "green")
    (tmp_path / "file").write_text("")
    out = tmp_path / "a.json"
    for results, options, message in (
        ("red", ("--out", str(out)), "has 1 red case, first speed of sequential at 2,048 tokens: no time"),
        ("green", ("--out", str(out), "--run", "other"), "--run is 'other', which is not stored"),
        ("green", ("--out", str(tmp_path / "file" / "a.json")), "cannot be written: "),
    ):
        assert main(["table", "--results", str(tmp_path / results), *options]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    assert not out.exists()


def test_a_table_beside_an_unreadable_record_is_5_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(record(), tmp_path)
    (tmp_path / "history" / record().gpu_key / "a.json").write_text("{")
    assert main(["table", "--results", str(tmp_path), "--out", str(tmp_path / "a.json")]) == 5
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / "a.json").exists()
