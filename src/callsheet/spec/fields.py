"""Which keys may stand where: the models' fields by the names that files use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from callsheet.spec.experiment import Experiment
from callsheet.spec.tree import Loc


@cache
def keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by their key in a file; its name comes first, as people write it."""
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    return {"name": fields["name"], **fields} if "name" in fields else fields


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside a type such as ``list[Role]`` or ``Scale | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, dict, Union, UnionType, Annotated):
        found = (model_in(argument) for argument in get_args(annotation))
        return next((model for model in found if model), None)
    return None


def model_at(loc: Loc) -> type[BaseModel] | None:
    """The model of the mapping at a loc; None where keys are free."""
    model: type[BaseModel] | None = Experiment
    for step in loc:
        if isinstance(step, str):
            info = keys(model).get(step) if model else None
            model = model_in(info.annotation) if info else None
    return model


def models(root: type[BaseModel] = Experiment) -> Iterator[type[BaseModel]]:
    """Every model of an experiment, each once, in the order in which a reader meets them."""
    seen = [root]
    for model in seen:
        yield model
        for info in keys(model).values():
            inner = model_in(info.annotation)
            if inner and inner not in seen:
                seen.append(inner)
