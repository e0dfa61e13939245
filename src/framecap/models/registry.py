"""The table of models: from a real callable to the function that stands for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Model = Callable[[Any, Any, Any], Any]
MODELS: dict[Any, Model] = {}


def models(*callables: Any) -> Callable[[Model], Model]:
    """Register ``model(tx, args, kwargs) -> Value`` for one or more real callables."""

    def register(model: Model) -> Model:
        for function in callables:
            if function in MODELS:
                raise LookupError(f"{function} has a model already")
            MODELS[function] = model
        return model

    return register
