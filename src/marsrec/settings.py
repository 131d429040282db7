"""The base of all typed settings: frozen, documented per field, unknown keys are errors."""

import json

from pydantic import BaseModel, ConfigDict, ValidationError


class Settings(BaseModel):
    """Settings that cannot be changed after they were checked, and that refuse keys they do not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def explain_validation(error: ValidationError) -> str:
    """Say in one line which settings were refused and why."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']} (found {json.dumps(problem['input'], default=str)})"
        for problem in error.errors()
    )
