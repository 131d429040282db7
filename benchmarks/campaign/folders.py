"""Saved models with changed bytes, half of them with checksums that fit again."""

import json
import shutil
from pathlib import Path
from random import Random

from benchmarks.campaign.case import Kind, LostError, Outcome, mutated
from benchmarks.campaign.material import START, model
from marsrec import Recommender
from marsrec.errors import MarsrecError
from marsrec.recommender.persistence import CONFIG, _digest


class Folders(Kind):
    name = "folders"
    share = 2.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.saved = model(folder / "model")
        self.files = sorted(file.relative_to(self.saved) for file in self.saved.rglob("*") if file.is_file())

    def run(self, chance: Random, place: Path) -> Outcome:
        folder = place / "model"
        shutil.copytree(self.saved, folder)
        name = chance.choice([file for file in self.files if file.name != "README.md"])
        before = (folder / name).read_bytes()
        match chance.randrange(12):
            case 0:
                (folder / name).unlink()
                data = b""
            case 1:
                data = (folder / chance.choice(self.files)).read_bytes()
                (folder / name).write_bytes(data)
            case _:
                data = mutated(before, chance)
                (folder / name).write_bytes(data)
        repaired = chance.random() < 0.5
        if repaired and name.name != CONFIG:
            config = json.loads((folder / CONFIG).read_text())
            config["files"] = {name: _digest(folder / name) for name in config["files"] if (folder / name).exists()}
            (folder / CONFIG).write_text(json.dumps(config))
        try:
            loaded = Recommender.load(folder)
            loaded.recommend(histories=[("i1", START), ("i2", START + 60)], k=3)
        except MarsrecError:
            return "refused"
        if data != before and not repaired and name.name != CONFIG:
            raise LostError(f"{name}: was changed, and the model was loaded")
        return "answered"
