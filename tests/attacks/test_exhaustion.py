"""Where two trainings meet, or disk or memory end, one sentence says so and what to do."""

import errno
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors import SafetensorError
from typer.testing import CliRunner

from marsrec.atomic import alone, atomic_file
from marsrec.cli import app
from marsrec.compute.memory import exhausted
from marsrec.errors import SettingsError
from marsrec.training import checkpoints
from marsrec.training.checkpoints import SafetensorsIO


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rows = [(u, f"i{(u + i) % 5}", 1_600_000_000 + 60 * i) for u in range(8) for i in range(6)]
    pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").write_csv(tmp_path / "log.csv")
    return tmp_path / "log.csv"


def test_a_folder_has_one_training_at_a_time(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    with alone(tmp_path / "model.training", "training"):
        done = CliRunner().invoke(app, ["fit", str(log), "--model", "sasrec", "--epochs", "1", "--out", str(out)])
    assert isinstance(done.exception, SettingsError)
    assert "another process works on this training. Wait for it" in str(done.exception)
    assert not out.exists()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "x.safetensors"), r"x\.safetensors: the disk is full"),
        (MemoryError("Unable to allocate 1.5 GiB for an array"), r"not enough memory: 1\.5 GiB more were wanted"),
        (RuntimeError("can't allocate memory: you tried to allocate 64 bytes."), "64 bytes more were wanted"),
    ],
)
def test_what_ran_out_is_said_with_the_remedy(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def failing(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(SafetensorsIO, "save_checkpoint", failing)
    out = tmp_path / "model"
    done = CliRunner().invoke(app, ["fit", str(log), "--model", "sasrec", "--epochs", "1", "--out", str(out)])
    assert isinstance(done.exception, SettingsError)
    with pytest.raises(SettingsError, match=rf"{message}.* with --resume goes on"):
        raise done.exception


def test_a_full_disk_is_one_whoever_writes(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as raised, atomic_file(tmp_path / "log.parquet"):
        raise pl.exceptions.ComputeError("parquet: underlying IO error: No space left on device (os error 28)")
    assert raised.value.filename == str(tmp_path / "log.parquet")
    assert list(tmp_path.iterdir()) == []


def test_other_errors_are_no_shortage() -> None:
    assert exhausted(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert exhausted(PermissionError(errno.EACCES, "Permission denied")) is None


def test_a_checkpoint_on_a_full_disk_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, io = tmp_path / "state.safetensors", SafetensorsIO()
    io.save_checkpoint({"weights": torch.ones(3)}, path)

    def full(tensors: object, file: Path, **kwargs: object) -> None:
        file.write_bytes(b"half")
        raise SafetensorError("Error while serializing: IoError")

    monkeypatch.setattr(checkpoints, "save_file", full)
    usage = type("Usage", (), {"free": 0})
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda place: usage)
    with pytest.raises(OSError, match="No space left on device"):
        io.save_checkpoint({"weights": torch.zeros(3)}, path)
    assert io.load_checkpoint(path)["weights"].tolist() == [1.0, 1.0, 1.0]
    assert [file.name for file in tmp_path.iterdir()] == ["state.safetensors"]
