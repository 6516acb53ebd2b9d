"""Branches of a model as calls into the kernels, where these can do what the modules do.

Which ones can is read off the modules themselves, and then measured: each native branch has to
give what its eager one gives, on random text, at the start of a text and further on. Where it
doesn't fit, the branch stays eager, and the reason is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..branch import ATTENTION, Branch
from ..cache import KVCache
from ..decoder import ResidualDecoder
from ..packing import linears_of
from ..pages import Pages
from .calls import (
    GEMMA,
    HALVES,
    IS_ATTENTION,
    IS_MLP,
    LAYER,
    NONE,
    PAIRS,
    RMS,
    Arguments,
    Joiner,
    NativeCall,
    Norm,
)
from .weights import LANES, NativeLinear, TiedEmbedding, pack_together, packable, padded_bias

_ACTIVATIONS = {"SiLUActivation": 0, "SiLU": 0, "GELUTanh": 1}
_TOLERANCES = {torch.bfloat16: 0.04, torch.float32: 1e-4}
_CHECKED_ROWS = (6, 4)  # of two forwards, the second with the first one's keys and values


class DoesNotFit(ValueError):
    """A branch that the kernels can't run; the message names what they lack."""


def go_native(decoder: ResidualDecoder) -> Iterator[float]:
    """Pack the model's weights and give its branches to the kernels, layer by layer.

    Yields the share that is done. `decoder.branches` know afterwards which are native;
    `why_eager` says of the others why not.
    """
    pages = Pages()
    layer_types = list(decoder.windows)
    for index, pair in enumerate(decoder.branches):
        for branch in pair:
            try:
                window = decoder.windows[branch.layer_type] or 0
                turning = layer_types.index(branch.layer_type)
                branch.native = native_branch(branch, pages, window=window, turning=turning)
            except DoesNotFit as reason:
                branch.native, branch.why_eager = None, str(reason)
            _pack_rest(branch.module, pages)
        yield (index + 1) / (decoder.n_layers + 1)
    decoder.pack_head(partial(NativeLinear, pages=pages), TiedEmbedding)
    check(decoder)
    decoder.join = Joiner()
    yield 1.0


def native_branch(branch: Branch, pages: Pages, *, window: int = 0, turning: int = 0) -> NativeCall:
    """The branch for the kernels, norms and multiplier included.

    The module's linears are packed on the way, into `pages`.

    Args:
        branch: of a model on the CPU.
        pages: where packed weights go.
        window: slots that an attention's row sees, its own included; 0 for all.
        turning: which of the context's pairs of cos and sin is its layer's.

    Raises:
        DoesNotFit: the module has another form than the kernels know.
    """
    before, after = _norm(branch.norm), _norm(branch.norm_after)
    arguments = Arguments()
    if branch.kind == ATTENTION:
        shape = _attention(arguments, branch.module, before, pages, window, turning)
    else:
        _mlp(arguments, branch.module, before, pages)
    arguments.norm(after)
    arguments.real(1.0 if branch.multiplier is None else branch.multiplier)
    return arguments.call(((branch.layer, shape),) if branch.kind == ATTENTION else ())


@torch.inference_mode()
def check(decoder: ResidualDecoder, *, seed: int = 0) -> None:
    """Measure each native branch beside its eager one; those that differ go back to being eager."""
    generator = torch.Generator().manual_seed(seed)
    caches = [KVCache(decoder.n_layers, sum(_CHECKED_ROWS)) for _ in range(2)]
    tolerance = _TOLERANCES[decoder.dtype]
    for rows in _CHECKED_ROWS:
        ids = torch.randint(0, decoder.vocab_size, (rows,), generator=generator)
        (h, mine), (_, plain) = (decoder.enter(ids, cache) for cache in caches)
        for branch in (branch for pair in decoder.branches for branch in pair):
            expected = branch.eager(h, plain)
            if branch.native is not None:
                got = branch(h, mine)
                error = float((got - expected).float().abs().max())
                if not error <= tolerance * max(1.0, float(expected.float().abs().max())):
                    branch.native = None
                    branch.why_eager = f"native and eager differ by {error:.2g}"
            h = h + expected
        # What the native branches wrote isn't what the next forward is compared on.
        caches[0].copy_from(caches[1])
        for cache in caches:
            cache.advance(rows)


def _attention(
    arguments: Arguments, module: Any, norm: Norm, pages: Pages, window: int, turning: int
) -> tuple[int, int]:
    """Puts down an attention; returns how many heads its keys and values have, and their size."""
    names: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    if not all(hasattr(module, name) for name in names):
        names = ("qkv_proj",)
    if not all(hasattr(module, name) for name in (*names, "o_proj", "head_dim", "scaling")):
        raise DoesNotFit(f"{type(module).__name__} keeps its projections another way")
    if "Cohere" in type(module).__name__:
        raise DoesNotFit(f"{type(module).__name__} turns neighbouring pairs of a head")
    _require_linears(module, (*names, "o_proj"))
    size = int(module.head_dim)
    if size % LANES:
        raise DoesNotFit(f"its heads have {size} numbers, no multiple of {LANES}")
    heads = module.o_proj.in_features // size
    q_norm, k_norm = (_norm(getattr(module, name, None)) for name in ("q_norm", "k_norm"))
    bias = _joined_bias([getattr(module, name) for name in names])
    qkv = pack_together(module, names, pages)
    arguments.number(IS_ATTENTION)
    arguments.norm(norm)
    arguments.tensor(qkv)
    arguments.maybe(bias)
    arguments.maybe(q_norm.weight)
    arguments.maybe(k_norm.weight)
    arguments.number(q_norm.kind)
    arguments.real(q_norm.eps)
    arguments.tensor(pack_together(module, ("o_proj",), pages))
    arguments.maybe(padded_bias(module.o_proj.bias))
    arguments.number(heads, window, turning if getattr(module, "use_rope", True) else -1)
    softcap = float(getattr(module, "attn_logit_softcapping", None) or 0.0)
    arguments.real(float(module.scaling), softcap)
    groups = (qkv.shape[0] * qkv.shape[2] // size - heads) // 2
    return groups, size


def _mlp(arguments: Arguments, module: Any, norm: Norm, pages: Pages) -> None:
    """Puts down an MLP."""
    for ups, down in (
        (("gate_proj", "up_proj"), "down_proj"),
        (("gate_up_proj",), "down_proj"),
        (("c_fc",), "c_proj"),
    ):
        if all(hasattr(module, name) for name in (*ups, down)):
            break
    else:
        raise DoesNotFit(f"{type(module).__name__} keeps its projections another way")
    act = getattr(module, "act_fn", getattr(module, "activation_fn", getattr(module, "act", None)))
    activation = _ACTIVATIONS.get(type(act).__name__)
    if activation is None:
        raise DoesNotFit(f"the kernels have no {type(act).__name__}")
    _require_linears(module, (*ups, down))
    gate = {("gate_proj", "up_proj"): PAIRS, ("gate_up_proj",): HALVES}.get(ups, NONE)
    bias = _joined_bias([getattr(module, name) for name in ups])
    arguments.number(IS_MLP)
    arguments.norm(norm)
    up = pack_together(module, ups, pages, in_turns=gate == PAIRS)
    if bias is not None and gate == PAIRS:
        width = up.shape[2]
        bias = bias.view(2, -1, width).transpose(0, 1).flatten()
    arguments.tensor(up)
    arguments.maybe(bias)
    arguments.number(gate, activation)
    arguments.tensor(pack_together(module, (down,), pages))
    arguments.maybe(padded_bias(getattr(module, down).bias))


def _norm(module: nn.Module | None) -> Norm:
    """A norm's parameters.

    Raises:
        DoesNotFit: a norm of another kind.
    """
    if module is None:
        return Norm()
    name = type(module).__name__
    weight = getattr(module, "weight", None)
    if weight is None:
        raise DoesNotFit(f"the kernels have no {name} without a weight")
    weight = weight.detach()
    if isinstance(module, nn.LayerNorm):
        bias = None if module.bias is None else module.bias.detach()
        return Norm(weight, bias, LAYER, module.eps)
    eps: Any = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not name.endswith("RMSNorm") or eps is None:
        raise DoesNotFit(f"the kernels have no {name}")
    return Norm(weight, None, GEMMA if name.startswith("Gemma") else RMS, float(eps))


def _require_linears(module: nn.Module, names: tuple[str, ...]) -> None:
    for name in names:
        linear = getattr(module, name)
        if type(linear) is not nn.Linear:
            raise DoesNotFit(f"{name} is a {type(linear).__name__}")
        if linear.out_features % LANES or not packable(linear.weight):
            raise DoesNotFit(f"{name} has {linear.out_features} outputs, no multiple of {LANES}")


def _joined_bias(linears: list[nn.Linear]) -> Tensor | None:
    if all(linear.bias is None for linear in linears):
        return None
    parts = [
        torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().float()
        for linear in linears
    ]
    return torch.cat(parts)


def _pack_rest(module: nn.Module, pages: Pages) -> None:
    """Pack the linears that no kernel call took."""
    for parent, name, linear in linears_of(module):
        if packable(linear.weight):
            setattr(parent, name, NativeLinear(linear, pages=pages))
