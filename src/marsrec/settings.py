"""The base of all typed settings: frozen, documented per field, unknown keys are errors."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Settings that cannot be changed after they were checked, and that refuse keys they do not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
