"""Options of commands: fields of settings, with the fields' defaults and docstrings, and a few that commands share.

A command that takes settings marks them in its signature, with `Fields`, `Shorthands` or `PartNames`, and receives what
was given. Its
options are made when it is called: importing some of the settings takes seconds, which `marsrec --help` has not.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import typer
from rich.markup import escape
from typer.core import TyperCommand

from marsrec.errors import SettingsError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from marsrec.data.filters import FilterSettings
    from marsrec.data.log import LogSettings
    from marsrec.settings import Settings

LOG, MODEL, TRAIN = "Reading the log", "The model", "Training"
NOT_GIVEN = "DEFAULT"
"""What typer calls the source of an option's value that is neither on the command line nor in the environment."""


@dataclass(frozen=True)
class Fields:
    """Marks a parameter that is a settings class: the command line has an option for each of its fields."""

    module: str
    """Where the class stands."""
    panel: str | None = None
    """The title under which help lists the options."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Options that are not called as their field."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment that stand in for an option, by field."""
    argument: str | None = None
    """The field that is no option but the command's argument."""
    without: tuple[str, ...] = ()
    """Fields that nobody needs on the command line."""

    def parameters(self, kind: Any) -> dict[str, inspect.Parameter]:
        """What typer is to parse for each field."""
        fields = self._class(kind).model_fields.items()
        return {name: self._parameter(name, info) for name, info in fields if name not in self.without}

    def value(self, kind: Any, given: dict[str, Any]) -> "Settings":
        """The settings, from what was given on the command line. They know what was and what is a default."""
        return self._class(kind)(**given)

    def _class(self, kind: Any) -> "type[Settings]":
        settings: type[Settings] = getattr(import_module(self.module), get_args(kind)[0].__forward_arg__)
        return settings

    def _parameter(self, name: str, info: "FieldInfo") -> inspect.Parameter:
        parsed, default = _parsed(info.annotation), ... if info.is_required() else info.default
        if parsed in (str, str | None) and default is not None:
            default = str(default)
        if name == self.argument:
            return _keyword(name, parsed, typer.Argument(default, help=_help(info), metavar=name.upper()))
        named, variable = self.names.get(name, flag(name)), self.environment.get(name)
        choices = _choices(info.annotation)
        option = typer.Option(
            default, named, help=_help(info), rich_help_panel=self.panel, envvar=variable, metavar=choices
        )
        return _keyword(name, parsed, option)


@dataclass(frozen=True)
class Shorthands:
    """Marks a parameter that maps model settings, by dotted name, to values: each has an option without a default.

    What is not given is left to the model and the data.
    """

    settings: Mapping[str, str]
    """The dotted name of each option's setting, as mars-t has it."""
    panel: str | None = None

    def parameters(self, kind: Any) -> dict[str, inspect.Parameter]:
        """What typer is to parse for each setting."""
        from marsrec.models import DENSE_FROM, model_settings

        sparse, dense = model_settings("mars-t"), model_settings("mars-t", DENSE_FROM)
        found = {}
        for name, setting in self.settings.items():
            *parents, leaf = setting.split(".")
            few, many = (reduce(getattr, parents, settings) for settings in (sparse, dense))
            info = type(few).model_fields[leaf]
            usual, where_dense = getattr(few, leaf), getattr(many, leaf)
            follows = f"{usual}, or {where_dense} from {DENSE_FROM:.0f} training events per user on"
            default = f"If not given: {usual}" if usual == where_dense else f"Follows from the data: {follows}"
            scope = _scope(parents[0], leaf) if parents else "Of every model"
            text = f"{_help(info)} {scope}. {default}{' (mars-t)' if parents else ''}."
            option = typer.Option(None, flag(name), help=text, rich_help_panel=self.panel)
            found[setting] = _keyword(name, _parsed(info.annotation) | None, option)
        return found

    def value(self, kind: Any, given: dict[str, Any]) -> dict[str, Any]:
        """The settings that were given."""
        return given


@dataclass(frozen=True)
class PartNames:
    """Marks a parameter that maps kinds of parts to names: each kind has an option, whose help tells the known names.

    What is not given is left to the recipe.
    """

    panel: str | None = None

    def parameters(self, kind: Any) -> dict[str, inspect.Parameter]:
        """What typer is to parse for each kind."""
        from marsrec.nn.settings import KINDS

        found = {}
        for name, base in KINDS.items():
            known = ", ".join(repr(part) if " " in part else part for part in base.known())
            text = f"Replace the recipe's {name}: {known}, or one of your own."
            option = typer.Option(None, flag(name), help=escape(text), rich_help_panel=self.panel, metavar="NAME")
            found[name] = _keyword(name, str | None, option)
        return found

    def value(self, kind: Any, given: dict[str, Any]) -> dict[str, Any]:
        """The parts that were given."""
        return given


def add(app: typer.Typer, function: Callable[..., None]) -> None:
    """Add a command to an app. Its options are made when it is called."""

    class Command(TyperCommand):
        def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
            alone = typer.Typer(add_completion=False)
            alone.command(function.__name__)(expanded(function))
            return typer.main.get_command(alone).make_context(info_name, args, parent, **extra)

    app.command(function.__name__, help=inspect.getdoc(function), cls=Command)(lambda: None)


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """A command as typer takes it: with a parameter for each option instead of those that are marked."""
    plain: list[inspect.Parameter] = []
    marked: dict[str, tuple[Fields | Shorthands | PartNames, Any, dict[str, inspect.Parameter]]] = {}
    for parameter in inspect.signature(function).parameters.values():
        annotated = getattr(parameter.annotation, "__metadata__", ())
        marks = [mark for mark in annotated if isinstance(mark, Fields | Shorthands | PartNames)]
        if not marks:
            plain.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        own = {  # two settings may have fields of the same name
            name: option.replace(name=f"{parameter.name}_{option.name}")
            for name, option in marks[0].parameters(parameter.annotation).items()
        }
        marked[parameter.name] = marks[0], parameter.annotation, own
        plain += own.values()

    def command(context: typer.Context, **values: Any) -> None:
        for target, (mark, kind, own) in marked.items():
            parsed = {name: (option.name, values.pop(option.name)) for name, option in own.items()}
            given = {name: value for name, (option, value) in parsed.items() if _given(context, option)}
            values[target] = mark.value(kind, given)
        function(**values)

    context = _keyword("context", typer.Context, inspect.Parameter.empty)
    command.__doc__, command.__name__ = function.__doc__, function.__name__
    command.__signature__ = inspect.Signature([context, *plain])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in (context, *plain)}
    return command


def _given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name != NOT_GIVEN


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def flag(name: str) -> str:
    """The option of a field."""
    return "--" + name.replace("_", "-")


def _help(info: "FieldInfo") -> str:
    """The docstring of a field, as typer shows it."""
    return escape(" ".join((info.description or "").split()))


def _scope(kind: str, leaf: str) -> str:
    """Which parts of a kind have a setting."""
    from marsrec.nn.settings import KINDS

    known = KINDS[kind].known()
    having = [name for name, part in known.items() if leaf in part.model_fields]
    return f"Of every {kind}" if len(having) == len(known) else f"Of {kind} {', '.join(having)}"


def _parsed(annotation: Any) -> Any:
    """The type that typer parses. Of what it does not know it takes the text, which pydantic reads."""
    if get_origin(annotation) is tuple:
        return list[str] if _choices(annotation) else list[get_args(annotation)[0]]  # type: ignore[misc]
    kinds = [annotation] if get_origin(annotation) in (None, Literal) else list(get_args(annotation))
    known = [kind for kind in kinds if kind is not NoneType]
    if len(known) == 1 and (known[0] in (bool, int, float, str, Path) or get_origin(known[0]) is Literal):
        return annotation
    return str | None if NoneType in kinds else str


def _choices(annotation: Any) -> str | None:
    """What may be repeated of a few names, which typer has no type for."""
    (kind, *_) = get_args(annotation) if get_origin(annotation) is tuple else (None,)
    return f"[{'|'.join(get_args(kind))}]" if get_origin(kind) is Literal else None


def find_own_modules(*names: Sequence[str] | None) -> None:
    """Let modules of the working folder be found, after all others, if any are named; `module:function` names one."""
    wanted = not names or any(":" in name for some in names for name in some or ())
    if wanted and "" not in sys.path:
        sys.path.append("")


def event_of(text: str) -> tuple[str, str]:
    """Item and time of an event as options give it."""
    item, at, time = text.rpartition("@")
    if not at:
        raise SettingsError(f"an event is ITEM@TIME, such as tea@2020-01-31T12:00; found {text!r}.")
    return item, time


Data = Annotated[str, typer.Argument(help="A log file, a prepared folder, or a name that `marsrec datasets` lists.")]
Saved = Annotated[Path, typer.Argument(help="A folder that `marsrec fit` wrote.")]
Events = Annotated[
    list[str] | None, typer.Option("--event", help="An event ITEM@TIME of one history; may be repeated.")
]
Published = Annotated[
    bool,
    typer.Option("--published", help="Follow a baseline's published code instead of its paper.", rich_help_panel=MODEL),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Log = Annotated["LogSettings", Fields("marsrec.data.log", LOG)]
Filters = Annotated["FilterSettings", Fields("marsrec.data.filters", LOG)]
TiesOption = Annotated[
    Literal["file", "recbole"],
    typer.Option(
        help="Order of a user's events of equal time: as in the file, or as in the library RecBole, which rounds times "
        "to single precision before it sorts. Choose that to compare with its results.",
        rich_help_panel=LOG,
    ),
]
