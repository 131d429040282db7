"""The base of all typed settings: frozen, documented per field, unknown keys are errors."""

import inspect
import json
from collections.abc import Mapping
from textwrap import indent
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """Settings that cannot be changed after they were checked, and that refuse keys they do not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Let `help` tell what each field means."""
        texts = {name: field.description for name, field in cls.model_fields.items() if field.description}
        fields = "\n".join(f"{name}\n{indent(text, '    ')}" for name, text in texts.items())
        if fields:
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or cls.__name__)}\n\nParameters\n----------\n{fields}"


def explain_validation(error: ValidationError) -> str:
    """Say in one line which settings were refused and why."""
    return "; ".join(map(refusal, error.errors()))


def refusal(problem: Mapping[str, Any]) -> str:
    """Say where a problem of pydantic's is, what it is, and what was found there."""
    place = ".".join(map(str, problem["loc"]))
    return f"{place}: {problem['msg']} (found {json.dumps(problem['input'], default=str)})"
