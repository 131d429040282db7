"""The command that lists recipes, and the settings of one."""

import json

from tests.cli.calls import call, outputs, refused

from marsrec.models import RECIPES, model_settings
from marsrec.nn.settings import KINDS


def test_models_prints_the_papers_parameter_counts() -> None:
    rows = json.loads(call("models", "--items", "12101", "--length", "50", "--json"))
    found = {row["name"]: row["parameters"] for row in rows}
    expected = {"gru4rec": 856_512, "sasrec": 877_824, "mamba4rec": 846_784, "mars-t": 895_996, "mars-m": 937_084}
    assert expected.items() <= found.items()
    assert set(found) == set(RECIPES)
    rows = json.loads(call("models", "--items", "3416", "--length", "200", "--heads", "8", "--json"))
    found = {row["name"]: row["parameters"] for row in rows}
    expected = {"sasrec": 331_584, "mamba4rec": 290_944, "mars-t": 350_024, "mars-m": 381_512}
    assert expected.items() <= found.items()
    parts = {row["name"]: (row["encoder"], row["readout"], row["causal"]) for row in rows}
    assert parts["mars-m"] == ("mamba", "mars", True)


def test_models_lists_the_parts() -> None:
    shown = " ".join(outputs("models")[1].split())
    assert "Readouts: core, hawkes, last, mars, narm." in shown
    assert "transformer." in shown.partition("Encoders: ")[2]


def test_all_settings_of_a_recipe_by_the_names_that_options_take() -> None:
    for name in RECIPES:
        rows = {row["setting"]: row for row in json.loads(call("models", name, "--json"))}
        parts = {kind: rows.pop(kind)["default"] for kind in KINDS}
        settings = model_settings(name)
        assert parts == {kind: getattr(settings, kind).name for kind in KINDS}
        assert all(row["help"] for row in rows.values())
        same = model_settings(name, options={setting: row["default"] for setting, row in rows.items()})
        assert same == settings
        dense = model_settings(name, 50.0, options={setting: row["dense"] for setting, row in rows.items()})
        assert dense == model_settings(name, 50.0)
        every = sum(len(type(getattr(settings, kind)).model_fields) - 1 for kind in KINDS)
        assert len(rows) == every + len(type(settings).model_fields) - len(KINDS)


def test_what_a_setting_takes_is_shown() -> None:
    rows = {row["setting"]: row for row in json.loads(call("models", "mars-t", "--json"))}
    assert rows["readout.clock"]["takes"] == "last-event | request"
    assert (rows["readout.heads"]["default"], rows["readout.heads"]["dense"]) == (4, 8)
    assert (rows["readout.heads"]["takes"], rows["readout.heads"]["help"]) == ("integer", "Number K of decay rates.")
    shown, notes = outputs("models", "bert4rec")
    assert "objective.mask_ratio" in shown
    assert "--published changes encoder.published=true, objective.published=true." in " ".join(notes.split())


def test_a_recipe_that_is_not_there_is_named() -> None:
    assert "unknown model 'mars-x'" in refused("models", "mars-x")
    assert "mars is mars-t or mars-m" in refused("models", "mars")
