"""Parts of a model and how they become known: ours, those of somebody's script, and those of installed packages.

A part is a settings class with a `name`. To define it is to register it, so importing its module is all it takes. An
installed package names such modules in the entry point group `marsrec.parts`.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar, Self

from pydantic import ModelWrapValidatorHandler, model_validator
from pydantic_core import PydanticCustomError

from marsrec.errors import SettingsError, warn
from marsrec.settings import Settings

GROUP = "marsrec.parts"
"""The entry points by which installed packages bring parts: each names a module, or a class in it."""

_KNOWN: dict[str, dict[str, type["Part"]]] = {}
"""Parts by kind and name."""


class UnknownPartError(SettingsError):
    """No part is registered under a name."""


class Part(Settings):
    """Settings of a part of a model.

    A subclass whose `name` has a default is registered under it. The others stand for all parts of their kind: a field
    of their type takes such settings, a mapping with a name, or the name alone.
    """

    kind: ClassVar[str]
    """What it is part of a model as: "encoder", "readout", "scorer" or "objective"."""
    name: str

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register what has a name."""
        super().__pydantic_init_subclass__(**kwargs)
        if _has_name(cls):
            _register(cls)

    @model_validator(mode="wrap")
    @classmethod
    def _by_name(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, cls) or _has_name(cls):
            return handler(value)
        values = {"name": value} if isinstance(value, str) else value
        if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
            raise PydanticCustomError(
                "part", "Input should be the name of a part, its settings, or a mapping of them with a name"
            )
        return cls.named(values["name"]).model_validate(values)

    @classmethod
    def known(cls) -> dict[str, type[Self]]:
        """All parts of this kind by name, those of installed packages included."""
        _import_ours()
        _import_plugins()
        return dict(sorted(_KNOWN[cls.kind].items()))  # type: ignore[arg-type]  # those of a kind are its subclasses

    @classmethod
    def named(cls, name: str) -> type[Self]:
        """The part of this kind that is registered under a name."""
        _import_ours()
        if name not in _KNOWN[cls.kind] and name not in cls.known():
            raise UnknownPartError(
                f"unknown {cls.kind} {name!r}; known are {', '.join(cls.known())}. One of your own is known as soon as "
                "the module that defines it is imported."
            )
        return _KNOWN[cls.kind][name]  # type: ignore[return-value]

    def suited_to_data(self, dense: bool) -> Mapping[str, Any]:
        """Values that suit sparse or dense data better than the defaults; one that is given wins."""
        return {}

    def differences(self, usual: Self) -> list[str]:
        """In what it differs from the usual settings as far as the title of a model says so."""
        return []

    @classmethod
    def origin(cls) -> dict[str, str] | None:
        """Which module brought a part, and which distribution if that is known; None for ours."""
        if cls.__module__.startswith("marsrec."):
            return None
        module = _script(sys.modules.get(cls.__module__)) if cls.__module__ == "__main__" else cls.__module__
        found = {"module": module}
        if distributions := packages_distributions().get(module.partition(".")[0]):
            found["distribution"] = distributions[0]
        return found


def foreign_modules() -> list[str]:
    """The modules that brought parts to this process. Another one knows the parts once it has imported them."""
    origins = (part.origin() for parts in _KNOWN.values() for part in parts.values())
    return sorted({origin["module"] for origin in origins if origin is not None})


def _has_name(part: type[Part]) -> bool:
    return not part.model_fields["name"].is_required()


def _register(part: type[Part]) -> None:
    name, known = part.model_fields["name"].default, _KNOWN.setdefault(part.kind, {})
    other = known.get(name)
    if other is not None and _place(other) != _place(part):  # the same place: a cell of a notebook that is run again
        raise SettingsError(
            f"two {part.kind}s are named {name!r}: {other.__module__}.{other.__qualname__} and "
            f'{part.__module__}.{part.__qualname__}. Give the latter a name of its own: name: Literal["..."] = "...".'
        )
    known[name] = part


def _place(part: type[Part]) -> tuple[str, str]:
    """Where a class is defined. A script that is imported has two modules, and one file."""
    module = sys.modules.get(part.__module__)
    return getattr(module, "__file__", None) or part.__module__, part.__qualname__


def _script(main: Any) -> str:
    """What `__main__` is called where it is imported."""
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return str(spec.name) if spec is not None else Path(file).stem if file is not None else "__main__"


@cache
def _import_ours() -> None:
    for folder in ("encoders", "readouts", "objectives"):
        package = import_module(f"marsrec.nn.{folder}")
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(module.name)
    import_module("marsrec.nn.scorers")


@cache
def _plugins() -> list[EntryPoint]:
    """Entry points that are still to be imported."""
    return [*entry_points(group=GROUP)]


def _import_plugins() -> None:
    while plugins := _plugins():
        plugin = plugins.pop(0)  # before it is imported, since that may lead here again
        try:
            plugin.load()
        except Exception as error:  # whatever it is, it must not stop those who do not need this package
            of = "" if plugin.dist is None else f" of {plugin.dist.name} {plugin.dist.version}"
            warn(
                f"the parts that {plugin.value!r}{of} should bring are unknown: {type(error).__name__}: {error}. "
                "Update or remove the package."
            )
