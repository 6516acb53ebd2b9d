"""Deep models of set redundancy: random weights, and extra layers that write little.

A trained deep model has layers that can be left out at small loss; how many, and how small,
isn't known beforehand. Here it is: the middle layers' last matrices are scaled by ε, so a draft
without them is right nearly always, and self-speculation has to gain what that allows. The
layers have the built-in model's shapes. The vocabulary is cut to 8,192, so that the readout is
2% of what a forward reads, as in a real deep model (Llama-70B: 80 layers, a head of 1.5%), and
not 12%, as it would be with the built-in model's vocabulary on layers this narrow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from selfspec_core.devices import pick_device, pick_dtype
from selfspec_core.loading import LoadedModel, wrap
from selfspec_core.plan import SkipPlan


@dataclass(frozen=True)
class Stack:
    """What a redundant model is made of; the built-in model's shapes unless told otherwise.

    Args:
        layers: decoder layers.
        keep: share of the layers that write in full, and that the draft keeps.
        epsilon: what the other layers' writing is scaled by.
        hidden, intermediate, heads, kv_heads, vocabulary: shapes.
        spread: standard deviation of the weights × √hidden. Wide enough that a greedy text
            doesn't fall into repeating one token, as it does at transformers' 0.02.
        context: most tokens.
    """

    layers: int = 60
    keep: float = 0.4
    epsilon: float = 0.003
    hidden: int = 576
    intermediate: int = 1536
    heads: int = 9
    kv_heads: int = 3
    vocabulary: int = 8192
    spread: float = 1.2
    context: int = 4096

    def __post_init__(self) -> None:
        if self.layers < 4:
            raise ValueError(f"a stack with layers to spare has 4 or more, got {self.layers}")
        if self.hidden < 64 or self.hidden % 64:
            raise ValueError(f"a stack's width is a multiple of 64, got --hidden {self.hidden}")
        if not 0 < self.keep < 1:
            raise ValueError(f"the share that is kept must be between 0 and 1, got {self.keep}")
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon must be 0 to 1, got {self.epsilon}")

    @property
    def plan(self) -> SkipPlan:
        """Skips exactly the layers that write little."""
        most = (self.layers - 3) / self.layers
        return SkipPlan.from_ratio(min(1 - self.keep, most), self.layers)

    def build(self, *, device: str = "auto", dtype: str = "auto", seed: int = 0) -> LoadedModel:
        """The model; the same for the same seed."""
        place = pick_device(device)
        number = pick_dtype(dtype, place)
        config = LlamaConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            tie_word_embeddings=False,
            initializer_range=self.spread / self.hidden**0.5,
            max_position_embeddings=self.context,
            bos_token_id=None,
            eos_token_id=None,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = LlamaForCausalLM(config).to(number)
        with torch.no_grad():
            for layer in self.plan.attention:
                block = model.model.layers[layer]
                block.self_attn.o_proj.weight.mul_(self.epsilon)
                block.mlp.down_proj.weight.mul_(self.epsilon)
        return wrap(
            model.to(place), None, id=f"random, {self.layers} layers", source="made by bench scale"
        )

    def prompts(self, count: int, length: int = 32, seed: int = 0) -> list[list[int]]:
        """Random texts."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, self.vocabulary, (count, length), generator=generator)
        return [list(map(int, row)) for row in ids]
