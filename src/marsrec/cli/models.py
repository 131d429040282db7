"""The command that lists recipes and parts, or all settings of one recipe."""

import json
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer

from marsrec.cli import console
from marsrec.cli.options import Json, Shorthands
from marsrec.errors import SettingsError

if TYPE_CHECKING:
    from marsrec.nn.settings import ModelSettings

HEADS = "readout.heads"


def models(
    name: Annotated[
        str | None,
        typer.Argument(help="Print all settings of this recipe instead, by the names that `marsrec fit --set` takes."),
    ] = None,
    *,
    options: Annotated[dict[str, Any], Shorthands({"length": "length", "dim": "dim", "heads": HEADS})],
    items: Annotated[
        int, typer.Option(help="How many items the catalog has: most parameters are vectors of items.")
    ] = 12_101,
    as_json: Json = False,
) -> None:
    """List every recipe with its parts and its number of parameters; or all settings of one."""
    if name is None:
        _list_recipes(options, items, as_json)
    else:
        _print_settings(name, options, as_json)


def _list_recipes(options: dict[str, Any], items: int, as_json: bool) -> None:
    from marsrec.models import RECIPES, model_settings
    from marsrec.nn.settings import KINDS

    rows = []
    for name, recipe in RECIPES.items():
        foreign = set() if "heads" in type(recipe.readout).model_fields else {HEADS}
        settings = model_settings(name, options={key: value for key, value in options.items() if key not in foreign})
        network = settings.build(items)
        rows.append(
            {
                "name": name,
                "encoder": recipe.encoder.name,
                "readout": recipe.readout.name,
                "scorer": recipe.scorer.name,
                "objective": recipe.objective.name,
                "causal": network.causal,
                "time": recipe.time,
                "parameters": network.parameter_count(),
            }
        )
    if as_json:
        console.as_json(rows)
        return
    cells = [list(row.values()) for row in rows]
    console.table(f"Recipes ({items:,} items, length {settings.length})", list(rows[0]), cells)
    for kind, base in KINDS.items():
        console.note(f"{kind.capitalize()}s: {', '.join(base.known())}.")
    console.note("--encoder, --readout, --scorer and --objective of `marsrec fit` put other parts together.")
    console.note("`marsrec models NAME` prints all settings of a recipe.")


def _print_settings(name: str, options: dict[str, Any], as_json: bool) -> None:
    from marsrec.models import BACKBONES, DENSE_FROM, RECIPES, model_settings, title

    if name == "mars":
        raise SettingsError(f"mars is {' or '.join(BACKBONES)}, by the data: name one of them.")
    settings = model_settings(name, options=options)
    dense = {row["setting"]: row["default"] for row in _rows(model_settings(name, DENSE_FROM, options=options))}
    rows = [{**row, "dense": dense[row["setting"]]} for row in _rows(settings)]
    if as_json:
        console.as_json(rows)
        return
    cells = [
        [
            row["setting"],
            _value(row["default"]) + ("" if row["dense"] == row["default"] else f" ({_value(row['dense'])})"),
            row["takes"],
            row["help"],
        ]
        for row in rows
    ]
    console.table(f"Settings of {title(settings)}", ["setting", "default", "takes", "what it is"], cells)
    console.note(
        f"In brackets: on dense data, which have {DENSE_FROM:.0f} training events per user or more on average. "
        "`marsrec datasets` lists public data, which get the paper's length, dropout and heads."
    )
    console.note(f"`marsrec fit LOG --model {name} --set NAME=VALUE` changes one; --encoder and the like change parts.")
    if published := RECIPES[name].published:
        changes = ", ".join(f"{path}={_value(value)}" for path, value in published.items())
        console.note(f"--published changes {changes}.")


def _rows(settings: "ModelSettings") -> list[dict[str, Any]]:
    """A row per setting by its dotted name; those of a part follow the part itself, whose value is its name."""
    from marsrec.nn.settings import KINDS

    rows = []
    for name, field in type(settings).model_fields.items():
        value, help_text = getattr(settings, name), " ".join((field.description or "").split())
        if name not in KINDS:
            rows.append({"setting": name, "default": value, "takes": _takes(field.annotation), "help": help_text})
            continue
        known = " | ".join(KINDS[name].known())
        rows.append({"setting": name, "default": value.name, "takes": known, "help": help_text})
        rows += [
            {
                "setting": f"{name}.{leaf}",
                "default": getattr(value, leaf),
                "takes": _takes(inner.annotation),
                "help": " ".join((inner.description or "").split()),
            }
            for leaf, inner in type(value).model_fields.items()
            if leaf != "name"
        ]
    return rows


def _takes(annotation: Any) -> str:
    """What a setting may be, in words.

    Examples
    --------
    >>> _takes(Literal["dot", "cosine"]), _takes(int | None), _takes(bool)
    ('dot | cosine', 'integer | null', 'true | false')
    """
    names = {bool: "true | false", int: "integer", float: "number", str: "text", NoneType: "null"}
    if annotation in names:
        return names[annotation]
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (None, tuple, list):
        return str(annotation)
    return " | ".join(map(_takes, get_args(annotation)))


def _value(value: Any) -> str:
    """A value as --set takes it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
