"""The model card of a saved folder."""

import json
from pathlib import Path

import pytest
import yaml
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings

TRAINING = TrainingSettings(epochs=1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log of a name of its own, and the model that was made of it."""
    place = tmp_path_factory.mktemp("secret-machine")
    log = place / "corner-shop.csv"
    cyclic_log(users=12, events=6, items=8).write_csv(log)
    model = Recommender("mars-t", options={"dim": 8, "length": 8}, training=TRAINING)
    model.fit(log, progress=False).save(place / "model")
    return place


@pytest.fixture(scope="module")
def text(place: Path) -> str:
    return (place / "model" / "README.md").read_text("utf-8")


def test_its_front_matter_is_what_the_hub_reads(place: Path, text: str) -> None:
    _, front, _ = text.split("---\n", 2)
    read = yaml.safe_load(front)
    assert read["library_name"] == "marsrec"
    assert {"recommender-systems", "sequential-recommendation", "mars-t"} <= set(read["tags"])
    (entry,) = read["model-index"]
    (result,) = entry["results"]
    assert result["dataset"] == {"type": "corner-shop", "name": "corner-shop", "split": "test"}
    measured = json.loads((place / "model" / "metrics.json").read_text())["test"]
    assert {row["type"]: row["value"] for row in result["metrics"]} == {
        name: pytest.approx(measured[name], abs=1e-6) for name in ("HR@10", "NDCG@10", "MRR@10")
    }


def test_it_tells_data_protocol_and_settings(place: Path, text: str) -> None:
    metrics = json.loads((place / "model" / "metrics.json").read_text())
    assert "# mars-t on corner-shop" in text
    assert "| users | 12 |" in text
    assert "| events | 72 |" in text
    assert "Split leave-one-out, all items ranked, items of the user's past among them" in text
    figures = " | ".join(f"{100 * metrics['test'][name]:.2f}" for name in ("HR@10", "NDCG@10", "MRR@10"))
    assert f"| this model, test | {figures} |" in text
    assert f"| popularity, test | {100 * metrics['yardsticks']['test']['popularity']['HR@10']:.2f} |" in text
    made = json.loads(text.split("```json\n")[1].split("```")[0])
    assert made["model"]["dim"] == 8
    assert made["training"] == {"epochs": 1}


def test_it_tells_nothing_of_the_machine_or_of_anybody(place: Path, text: str) -> None:
    assert "secret-machine" not in text
    assert str(Path.home()) not in text
    log = cyclic_log(users=12, events=6, items=8)
    assert not any(f"{name}\n" in text or f'"{name}"' in text for name in {*log["user"], *log["item"]})


def test_it_tells_whether_users_can_be_asked_for(place: Path, text: str, tmp_path: Path) -> None:
    assert "a user of the data" in text
    Recommender.load(place / "model").save(tmp_path / "model", histories=False)
    without = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "a user of the data" not in without
    assert "The users' histories are not part of it" in without


def test_its_code_runs(place: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = text.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(place)
    exec(code.replace("FOLDER", "model").replace('"ITEM"', '"i3"').replace('"USER"', '"u3"'), {})


def test_it_may_be_edited(place: Path) -> None:
    card = place / "model" / "README.md"
    card.write_text("---\nlicense: mit\n---\n" + card.read_text("utf-8"), encoding="utf-8")
    assert Recommender.load(place / "model").name == "mars-t"


def test_data_in_memory_and_what_was_not_measured(tmp_path: Path) -> None:
    model = Recommender("sasrec", options={"dim": 8, "length": 8}, training=TRAINING)
    model.fit(cyclic_log(users=12, events=6, items=8), test=False, progress=False).save(tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text("utf-8")
    assert "# sasrec on data in memory" in text
    assert "model-index" not in text
    assert "| this model, validation |" in text
    assert "test |" not in text
