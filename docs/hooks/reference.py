"""The pages of the reference, made from the code when the site is built: Python, command line, HTTP, settings."""

import json
from collections.abc import Iterator
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import typer
from fastapi import FastAPI
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import marsrec
from marsrec.cli import app
from marsrec.nn.settings import KINDS
from marsrec.serve.endpoints import ROUTERS
from marsrec.serve.refusals import install

ROOMS = {
    "recommender": "Recommender, session and explanation",
    "data": "Data",
    "training": "Training",
    "evaluation": "Evaluation",
    "nn": "Operators, models and parts",
    "lab": "Search for settings",
}
"""The rooms whose names `import marsrec` offers, and what their pages are called."""
KINDS_OF_VALUES = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "Path": "PATH"}
"""What command lines call the types of values."""
MODULES = {"testing": ("Conformance suite", "marsrec.testing"), "metrics": ("Metrics", "marsrec.evaluation.metrics")}
"""Modules that people use and that are not imported from `marsrec` itself."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    pages = {"command-line": command_line(), "http": http(), "settings": settings()}
    for room, title in ROOMS.items():
        names = [name for name, home in marsrec._HOMES.items() if home.split(".")[1] == room]
        pages[room] = "\n\n".join([f"# {title}", *(f"::: marsrec.{name}" for name in _defined(names))])
    for page, (title, module) in MODULES.items():
        pages[page] = f"# {title}\n\n::: {module}\n    options:\n      show_root_heading: false\n"
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def _defined(names: list[str]) -> Iterator[str]:
    """Where the objects are defined, which is where their source is read."""
    for name in names:
        yield f"{getattr(marsrec, name).__module__}.{name}".removeprefix("marsrec.")


def settings() -> str:
    """Every part of a model with its settings."""
    text = [
        "# Settings of models",
        '`--set encoder.dropout=0.2` on the command line and `options={"encoder.dropout": 0.2}` in Python change a '
        "setting. `marsrec models NAME` prints those of one recipe with their values.",
    ]
    for kind, base in KINDS.items():
        text.append(f"## {kind.capitalize()}s")
        for name, part in base.known().items():
            text += [f"### {kind} `{name}`", f"::: {part.__module__}.{part.__name__}", *_options()]
    return "\n\n".join(text)


def _options() -> list[str]:
    lines = [
        "options:",
        "  show_root_heading: false",
        "  inherited_members: true",
        '  filters: ["!^_", "!^[a-z_]*\\\\("]',
    ]
    return ["\n".join("    " + line for line in lines)]


def command_line() -> str:
    """Every command with its arguments and options, as typer knows them."""
    text = ["# Command line", "`marsrec COMMAND --help` prints the same in a terminal."]
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            text += [f"## marsrec {name}", command.help]
            for inner, inner_command in command.commands.items():
                text += _command(f"{name} {inner}", inner_command, 3)
        else:
            text += _command(name, command, 2)
    return "\n\n".join(text)


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    # Options are made when a command is called.
    command = command.make_context(name, [], resilient_parsing=True).command
    arguments = [option for option in command.params if option.param_type_name == "argument"]
    options = [option for option in command.params if option.param_type_name == "option" and not option.hidden]
    usage = " ".join(["marsrec", name, *(option.name.upper() for option in arguments), "[OPTIONS]"])
    yield f"{'#' * level} marsrec {name}"
    yield command.help or ""
    yield f"```text\n{usage}\n```"
    for option in arguments:
        yield f"`{option.name.upper()}`\n:   {_plain(option.help)}"
    panel = None
    for option in sorted(options, key=lambda option: option.rich_help_panel or ""):
        if option.name == "help":
            continue
        if option.rich_help_panel != panel:
            panel = option.rich_help_panel
            yield f"**{panel}**"
        names = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
        yield f"{names}{_takes(option)}{_default(option)}\n:   {_plain(option.help)}"


def _plain(text: str | None) -> str:
    """Help without the marks that typer's terminal reads."""
    return " ".join((text or "").replace("\\[", "[").split())


def _takes(option: Any) -> str:
    """What an option takes: one of some words, or a kind of value."""
    kinds = [option.type_descriptor.annotation]
    while get_args(kinds[0]) and get_origin(kinds[0]) is not Literal:
        kinds = [kind for kind in get_args(kinds[0]) if kind is not NoneType]
    if get_origin(kinds[0]) is Literal:
        return " " + " or ".join(f"`{word}`" for word in get_args(kinds[0]))
    if kinds[0] is bool:
        return ""
    return f" {option.metavar or KINDS_OF_VALUES.get(kinds[0].__name__, kinds[0].__name__)}"


def _default(option: Any) -> str:
    value = option.default
    if callable(value) or value in (None, False, (), [], "") or option.is_flag:
        return ""
    return f" (default `{value}`)"


def http() -> str:
    """Every address with what it takes and answers, from OpenAPI."""
    server = FastAPI(title="marsrec", version=marsrec.__version__)
    for router in ROUTERS:
        server.include_router(router)
    install(server)
    described = server.openapi()
    text = [
        "# HTTP",
        "A running server describes itself in the same words at `/openapi.json`. "
        "[Serving](../serving.md) shows requests with their answers.",
    ]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            text += [f"## {method.upper()} {path}", operation.get("description", operation["summary"])]
            for parameter in operation.get("parameters", []):
                place = f"in the {parameter['in']}"
                text.append(_field(parameter["name"], parameter["schema"], parameter.get("description", ""), place))
            for what, schema in _bodies(operation):
                text.append(f"{what}: {_kind(schema)}.")
            replies = operation["responses"].items()
            refused = [f"- {status}: {reply['description']}" for status, reply in replies if status[0] in "45"]
            text.append("Errors:\n\n" + "\n".join(refused))
    text.append("## Schemas")
    for name, schema in described["components"]["schemas"].items():
        text += [f"### {name}", schema.get("description", "")]
        for field, kind in schema.get("properties", {}).items():
            needed = "required" if field in schema.get("required", []) else ""
            text.append(_field(field, kind, kind.get("description", ""), needed))
    return "\n\n".join(text)


def _bodies(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a request brings, and what its answer holds."""
    replies = [reply for status, reply in operation["responses"].items() if status.startswith("2")]
    for what, place in [("Body", operation.get("requestBody", {})), *(("Answer", reply) for reply in replies)]:
        for content in place.get("content", {}).values():
            yield what, content.get("schema", {"type": "text"})


def _field(name: str, schema: dict[str, Any], description: str, remark: str) -> str:
    default = f"default `{json.dumps(schema['default'])}`" if schema.get("default") is not None else ""
    remarks = ", ".join(part for part in (_kind(schema), remark, default) if part)
    return f"`{name}` ({remarks})" + (f"\n:   {' '.join(description.split())}" if description else "")


def _kind(schema: dict[str, Any]) -> str:
    """The type of a value, with a link where it is a schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return " or ".join(f'"{value}"' for value in schema["enum"])
    return str(schema.get("type", "anything"))
