"""An encoder and a readout in somebody's script: trained there, then loaded, explained and served elsewhere.

The script is the code of `docs/own-parts.md`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from marsrec import Recommender, TrainingSettings
from marsrec.errors import DataError
from marsrec.testing.case import cyclic_log

PAGE = Path(__file__).parents[2] / "docs" / "own-parts.md"
TRAIN = """
if __name__ == "__main__":
    import json

    from marsrec import Recommender, TrainingSettings
    from marsrec.testing import check_encoder, check_readout

    check_encoder(FadingSettings(width=8))
    check_readout(MeanSettings())
    recommender = Recommender(
        encoder=FadingSettings(width=16),
        readout=MeanSettings(),
        options={"dim": 8},
        training=TrainingSettings(epochs=2),
    )
    recommender.fit("shop.csv", progress=False).save("model")
    print(json.dumps(recommender.recommend("u1", k=3).to_dicts()))
"""
ELSEWHERE = """
import json

import shop_parts
from fastapi.testclient import TestClient
from marsrec import Recommender
from marsrec.serve.app import create_app
from marsrec.serve.settings import ServeSettings

recommender = Recommender.load("model")
assert recommender.planned_settings(10.0) == recommender.settings
best = recommender.recommend("u1", k=3)
why = recommender.explain("u1", best["item"][0])
with TestClient(create_app(ServeSettings(models=("model",), store="events.db")), base_url="http://localhost") as client:
    served = client.get("/v1/users/u1/recommendations", params={"k": 3, "explain": True})
    assert served.status_code == 200, served.text
print(json.dumps({
    "best": best.to_dicts(),
    "explained": [why.score, why.last_state + why.terms["share"].sum(), why.terms.height],
    "served": served.json(),
    "evaluated": recommender.evaluate().metrics,
}))
"""
NOBODY = """
import json

from typer.testing import CliRunner
from marsrec import Recommender
from marsrec.cli import app
from marsrec.errors import DataError

try:
    Recommender.load("model")
except DataError as error:
    print(json.dumps(str(error)))
recommend = ["recommend", "model", "--user", "u1", "-k", "3", "--json"]
missing = CliRunner().invoke(app, ["--import", "shop_partz", *recommend])
print(json.dumps(str(missing.exception)))
found = CliRunner().invoke(app, ["--import", "shop_parts", *recommend])
print(json.dumps(json.loads(found.stdout)))
"""


def run(folder: Path, *arguments: str) -> list[Any]:
    """What a new process prints, a JSON value per line."""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """A folder with a script and the model that it has trained, and what the script recommends."""
    folder = tmp_path_factory.mktemp("shop")
    parts = re.findall(r"^```python title=.+?\n(.+?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (folder / "shop_parts.py").write_text("\n".join([*parts, TRAIN]))
    cyclic_log(users=12).write_csv(folder / "shop.csv")
    (best,) = run(folder, "shop_parts.py")
    return folder, best


def test_what_a_script_has_trained_is_used_where_its_parts_are_imported(shop: tuple[Path, list[dict]]) -> None:
    folder, best = shop
    (found,) = run(folder, "-c", dedent(ELSEWHERE))
    assert found["best"] == best
    score, total, terms = found["explained"]
    assert score == pytest.approx(best[0]["score"], abs=1e-5) == pytest.approx(total, abs=1e-4)
    assert terms == 2 * 12  # the events of u1, as the readout weighs them and as they were had before
    assert [(item["item"], pytest.approx(item["score"], abs=1e-4)) for item in found["served"]["items"]] == [
        (item["item"], item["score"]) for item in best
    ]
    config = json.loads((folder / "model" / "config.json").read_text())
    assert found["evaluated"] == json.loads((folder / "model" / "metrics.json").read_text())["test"]
    assert config["made"]["encoder"] == {"name": "fading", "width": 16}
    assert config["origins"] == {"encoder": {"module": "shop_parts"}, "readout": {"module": "shop_parts"}}


def test_elsewhere_the_module_to_import_is_named(shop: tuple[Path, list[dict]]) -> None:
    folder, best = shop
    refused, missing, found = run(folder, "-c", dedent(NOBODY))
    assert refused == (
        "model: its encoder 'fading' comes from the module 'shop_parts'. Import it before you load the model: "
        "import shop_parts, or `marsrec --import shop_parts …`."
    )
    assert missing.startswith("--import shop_partz: No module named 'shop_partz'.")
    assert found == best


def test_the_package_of_a_part_is_named(shop: tuple[Path, list[dict]], tmp_path: Path) -> None:
    shutil.copytree(shop[0] / "model", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    config["origins"]["encoder"] |= {"distribution": "shop-parts"}
    file.write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"from the module 'shop_parts' of the package 'shop-parts'. Import it before"):
        Recommender.load(tmp_path / "model")
    del config["origins"]
    file.write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"unknown encoder 'fading'; known are .* One of your own is known as soon as"):
        Recommender.load(tmp_path / "model")


def test_folders_that_were_saved_before_parts_had_origins_load(tmp_path: Path) -> None:
    training = TrainingSettings(epochs=1)
    recommender = Recommender("gru4rec", options={"dim": 8}, training=training)
    recommender.fit(cyclic_log(users=12), progress=False).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop("origins") == {}
    assert (config["made"].pop("scorer"), config["made"].pop("objective")) == (None, None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = Recommender.load(tmp_path)
    assert loaded.recommend("u1").equals(recommender.recommend("u1"))
    assert loaded.settings == loaded.planned_settings(10.0)
