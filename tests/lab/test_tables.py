"""Tables show what was run, beside what the paper says, and what was not run."""

from marsrec.data.splits import SplitSettings
from marsrec.lab.results import Result
from marsrec.lab.tables import main_comparison, markdown
from marsrec.models import RECIPES, model_settings
from marsrec.training.module import TrainingSettings


def result(model: str, hits: float, seed: int = 0, **options: object) -> Result:
    test = {"HR@10": hits, "NDCG@10": 0.04, "MRR@10": 0.03}
    return Result(
        data="beauty",
        fingerprint="x",
        statistics={"average_length": 8.9},
        model=model,
        settings=model_settings(model, options=options),
        training=TrainingSettings(seed=seed),
        split=SplitSettings(),
        valid=test,
        test=test,
        parameters=1,
        best_epoch=5,
        epochs=25,
        minutes=7.0,
        curve=[],
    )


def test_main_comparison() -> None:
    found = [result("sasrec", 0.0844), result("mars-t", 0.09), result("mars-t", 0.092, seed=1)]
    found.append(result("sasrec", 0.5, length=7))  # not the paper's settings
    columns, rows = main_comparison(found, "beauty")
    assert [row[0] for row in rows] == list(RECIPES)
    by_model = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    assert by_model["gru4rec"]["HR@10"] == "not run"
    assert by_model["sasrec"]["HR@10"] == "8.44"
    assert by_model["sasrec"]["paper"] == "8.04 / 4.10 / 2.90"
    assert by_model["sasrec"]["HR@10 against it"] == "+5.0%"
    assert by_model["mars-t"]["HR@10"] == "9.10 ± 0.14"
    assert by_model["mars-t"]["seeds"] == "0, 1"
    assert "| sasrec | 8.44 |" in markdown((columns, rows))
