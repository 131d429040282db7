"""Settings explain themselves."""

from marsrec.nn.settings import ModelSettings
from marsrec.training.settings import TrainingSettings


def test_help_tells_what_each_field_means() -> None:
    assert "patience\n    Stop after this many epochs without a better validation NDCG@10." in TrainingSettings.__doc__
    assert TrainingSettings.__doc__.startswith("How a model is trained.")
    for name, field in ModelSettings.model_fields.items():
        assert f"\n{name}\n    {field.description.splitlines()[0]}" in ModelSettings.__doc__
