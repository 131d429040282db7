from pathlib import Path

import pytest

from marsrec.atomic import atomic_folder


def write(folder: Path, text: str) -> None:
    with atomic_folder(folder, "marker") as temporary:
        (temporary / "marker").write_text(text)


def test_an_interrupt_between_the_two_renames_leaves_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "model", "old")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if target == tmp_path / "model" and not self.name.endswith(".old"):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "model", "new")
    assert (tmp_path / "model" / "marker").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_folder_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(Path(), "new")
    assert (tmp_path / "here" / "marker").read_text() == "new"
