"""Weights into a transformers model: which class, and that nothing is missing or made up."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

from safetensors import SafetensorError
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from .builtin import LoadError
from .families import UnsupportedModelError


def model_class(config: Any) -> Any:
    """The transformers class of a config; never one from a model's own code."""
    return MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]


def read_model(where: Any, config: Any, *, id: str, **options: Any) -> Any:
    """transformers' `from_pretrained`, refused where it would fill up with random weights.

    Raises:
        LoadError: weights are missing; names one.
    """
    model, told = model_class(config).from_pretrained(
        where, config=config, output_loading_info=True, **options
    )
    if missing := sorted(told["missing_keys"]):
        raise LoadError(f"{id} lacks {len(missing)} of its weights, {missing[0]} for one")
    return model


@contextlib.contextmanager
def readable(id: str) -> Iterator[None]:
    """Turn what the readers of files raise into a `LoadError` that names the model."""
    try:
        yield
    except (LoadError, UnsupportedModelError):
        raise
    except (
        OSError,
        ValueError,
        RuntimeError,
        LookupError,
        TypeError,
        struct.error,
        SafetensorError,
    ) as error:
        raise LoadError(f"{id} can't be read: {error}") from error
