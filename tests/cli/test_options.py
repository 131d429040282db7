"""Options that stand for fields of settings: their names, defaults and help are the fields'."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer
from pydantic.fields import FieldInfo
from rich.markup import render
from typer.testing import CliRunner

from marsrec.cli.data import prepare
from marsrec.cli.fit import fit
from marsrec.cli.options import LOG, MODEL, TRAIN, Fields, expanded
from marsrec.cli.serve import serve
from marsrec.data.filters import FilterSettings
from marsrec.data.log import LogSettings
from marsrec.data.splits import SplitSettings
from marsrec.models import model_settings
from marsrec.nn.settings import KINDS, ModelSettings
from marsrec.serve.settings import ServeSettings
from marsrec.settings import Settings
from marsrec.training.settings import TrainingSettings


def options(command: Callable[..., None]) -> dict[str, Any]:
    """The options of a command as typer has them, by name; an argument by the name of its parameter."""
    app = typer.Typer(add_completion=False)
    app.command()(expanded(command))
    return {(p.opts[0] if p.opts[0].startswith("-") else p.name): p for p in typer.main.get_command(app).params}


def flag(field: str) -> str:
    return "--" + field.replace("_", "-")


def help_of(field: FieldInfo) -> str:
    return " ".join(str(field.description).split())


@pytest.mark.parametrize(
    ("command", "settings", "panel", "names"),
    [
        (fit, LogSettings, LOG, {}),
        (fit, FilterSettings, LOG, {}),
        (fit, SplitSettings, TRAIN, {"name": "--split"}),
        (fit, TrainingSettings, TRAIN, {"pool": None, "preset": "--training"}),
        (prepare, LogSettings, LOG, {}),
        (prepare, FilterSettings, LOG, {}),
        (serve, ServeSettings, None, {"models": "settings_models"}),
    ],
)
def test_defaults_and_help_are_the_fields(
    command: Callable[..., None], settings: type[Settings], panel: str | None, names: dict[str, str | None]
) -> None:
    found = options(command)
    for name, field in settings.model_fields.items():
        if (option := names.get(name, flag(name))) is None:
            assert flag(name) not in found
            continue
        default = found[option].default
        assert default == field.default or default == str(field.default) or field.is_required()
        assert found[option].required == field.is_required()
        assert render(found[option].help).plain == help_of(field)
        assert getattr(found[option], "rich_help_panel", None) == panel


def test_shorthands_have_the_help_of_their_field_and_no_default() -> None:
    found, mars = options(fit), model_settings("mars-t")
    for option, field in (
        ("--length", ModelSettings.model_fields["length"]),
        ("--dim", ModelSettings.model_fields["dim"]),
        ("--heads", type(mars.readout).model_fields["heads"]),
        ("--clock", type(mars.readout).model_fields["clock"]),
        ("--dropout", type(mars.encoder).model_fields["dropout"]),
    ):
        assert found[option].default is None
        assert render(found[option].help).plain.startswith(f"{help_of(field)} Of ")
        assert found[option].rich_help_panel == MODEL
    told = {option: render(found[option].help).plain for option in ("--length", "--dim", "--heads", "--dropout")}
    assert told["--length"].endswith(
        "Of every model. Follows from the data: 50, or 200 from 50 training events per user on."
    )
    assert told["--dim"].endswith("Of every model. If not given: 64.")
    assert "Of readout hawkes, mars. Follows from the data: 4, or 8 from 50" in told["--heads"]
    assert "Of every encoder. Follows from the data: 0.5, or 0.2 from 50" in told["--dropout"]


def test_options_for_parts_name_those_that_are_known() -> None:
    found = options(fit)
    for kind, base in KINDS.items():
        text = render(found[f"--{kind}"].help).plain
        assert all(part in text for part in base.known())
        assert found[f"--{kind}"].default is None


def test_all_fields_of_settings_are_described() -> None:
    for command in (fit, prepare, serve):
        assert all(option.help for option in options(command).values())


def given(*arguments: str, environment: dict[str, str] | None = None) -> Any:
    """The settings that a command receives."""
    seen = []

    def command(settings: Any) -> None:
        seen.append(settings)

    command.__annotations__ = {"settings": inspect.signature(serve).parameters["settings"].annotation}
    app = typer.Typer()
    app.command()(expanded(command))
    assert CliRunner().invoke(app, arguments, env=environment, catch_exceptions=False).exit_code == 0
    return seen[0]


def test_settings_know_what_was_given() -> None:
    settings = given("a", "b", "--port", "8000", environment={"MARSREC_TOKEN": "sixteen characters"})
    assert settings.model_fields_set == {"models", "port", "token"}
    assert [str(folder) for folder in settings.models] == ["a", "b"]
    assert settings.token.get_secret_value() == "sixteen characters"


def test_text_becomes_what_the_field_is() -> None:
    assert SplitSettings(name="global-time", valid_from="0.8") == SplitSettings(name="global-time")
    assert SplitSettings(valid_from="2020-01-31").valid_from == "2020-01-31"
    assert [TrainingSettings(devices=text).devices for text in ("2", "-1", "auto", "0,1")] == [2, -1, "auto", "0,1"]


def test_help_of_all_commands_imports_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from marsrec.cli import app;"
        "assert 'Train a model' in CliRunner().invoke(app, ['--help']).stdout;"
        "print(*{'torch', 'polars', 'numpy', 'lightning'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_mark_names_a_class_that_exists() -> None:
    for command in (fit, prepare, serve):
        for parameter in inspect.signature(command).parameters.values():
            for mark in getattr(parameter.annotation, "__metadata__", ()):
                if isinstance(mark, Fields):
                    named = {*mark.names, *mark.environment, *mark.without, *filter(None, [mark.argument])}
                    settings = sys.modules[mark.module].__dict__[parameter.annotation.__origin__.__forward_arg__]
                    assert named <= set(settings.model_fields)
