"""What all parts of an experiment share: frozen, strict, camelCase in files, docstrings as descriptions."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, WithJsonSchema
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """A part of an experiment. Unknown keys are mistakes; values are never converted silently."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
    )


FreeMapping = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
"""A mapping that Kubernetes defines and Callsheet carries as it is."""
