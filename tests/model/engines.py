"""Engines on tiny random models, with a byte-level tokenizer that can split any character."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from selfspec_core.decoder import ResidualDecoder
from selfspec_core.engine import Engine
from selfspec_core.loading import wrap
from selfspec_core.plan import SkipPlan
from selfspec_core.request import Request
from selfspec_core.sampling import Sampling

from .tiny import tiny

BYTES = 258  # bos, eos and the 256 bytes


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Token 0 begins, token 1 ends, token 2 + b is byte b."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet(), key=_byte)
    vocab = {"<s>": 0, "</s>": 1, **{c: 2 + i for i, c in enumerate(alphabet)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def _byte(symbol: str) -> int:
    """The byte that a symbol of the byte-level alphabet stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    code = ord(symbol)
    return code if code in printable else [b for b in range(256) if b not in printable][code - 256]


def engine_on(
    name: str = "llama",
    *,
    end: int | None = 1,
    seed: int = 0,
    change: Callable[[ResidualDecoder], None] | None = None,
    **overrides: Any,
) -> Engine:
    """An engine on a tiny model of 258 tokens; `end` is its end token, None for none.

    `change` is shown the stack while its weights are still plain parameters, and may change them.
    """
    model = tiny(name, seed=seed, **{"vocab_size": BYTES, **overrides})
    model.config.eos_token_id = end
    model.generation_config.eos_token_id = end
    loaded = wrap(model, byte_tokenizer())
    if change is not None:
        with torch.no_grad():
            change(ResidualDecoder(loaded.model, loaded.family))
    return Engine(loaded)


PROMPT = "The café 🙂 opens"


def request(engine: Engine, plan: str = "1-2", temperature: float = 0.0, **values: Any) -> Request:
    """A request with short defaults."""
    sampling = values.pop("sampling", Sampling(temperature=temperature))
    return Request(
        **{
            "prompt": PROMPT,
            "plan": SkipPlan.parse(plan, engine.n_layers),
            "k": 3,
            "max_new_tokens": 24,
            "sampling": sampling,
            **values,
        }
    )


def saved_model(where: Path, **overrides: Any) -> Path:
    """A folder with a tiny Llama that loads by its path, and a file of prompts."""
    engine = engine_on("llama", end=None, **overrides)
    engine.loaded.model.save_pretrained(where)
    engine.tokenizer.save_pretrained(where)
    prompts = [json.dumps({"prompt": text}) for text in ("One", "Two and", "Three", "Four more")]
    (where / "prompts.jsonl").write_text("\n".join(prompts))
    return where
