"""Importance of branches, attributed straight to their gates (design §1).

`h ← h + gate · branch(h)`: the gate is the input, so what Captum says of it is said of
skipping itself. Attribution is an estimate of what dropping a branch costs, not the measured
drop: for the built-in model its rank correlation with the measured one is about 0.6 (design §6).

Every row of a text has its own gates. Attributions are [2·n_layers, N]: a row a branch, in the
order attention 0, MLP 0, attention 1, …; in nats, positive where the branch helps the text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients, ShapleyValueSampling
from torch import Tensor

from selfspec_core.loading import LoadedModel
from selfspec_core.plan import SkipPlan

from .float_copy import float_copy
from .scores import Objective
from .texts import Text

MAX_TOKENS = 96
_ROWS_AT_ONCE = 512  # of all texts of a batch together; more gains no speed and takes memory
_ROWS_WITH_GRADIENT = 128  # gradients of more rows at once are slower, and nobody could stop them


@dataclass(frozen=True)
class GateImportance:
    """One value a branch.

    Args:
        attention, mlp: [n_layers] sum over tokens of |gate × ∂score/∂gate|, in nats.
        tokens: how many written tokens were scored.
        seconds: what it took.
    """

    attention: tuple[float, ...]
    mlp: tuple[float, ...]
    tokens: int
    seconds: float


def gate_importance(
    loaded: LoadedModel, token_ids: Sequence[int], *, prompt_length: int
) -> GateImportance:
    """Gate × gradient of the written text's log-probability, per branch, in one backward.

    Every row has its own gates, all 1; the score is Σ log p(token) over the written tokens;
    signed values of different tokens cancel, so they are summed by absolute value. Computed in
    float32; a copy of weights held in another type is made for it and freed.

    Args:
        loaded: the model; nothing of it is changed.
        token_ids: prompt and written tokens.
        prompt_length: how many of them are the prompt's, at least 1. Texts are cut to their
            last `MAX_TOKENS` tokens, so that it stays a matter of a second or two.

    Raises:
        ValueError: nothing was written, or there is no prompt.
    """
    begin = time.perf_counter()
    whole = Text(tuple(token_ids), prompt_length)
    cut = max(0, len(token_ids) - MAX_TOKENS)
    text = Text(whole.ids[cut:], max(1, prompt_length - cut))
    stack = float_copy(loaded).stack
    values = input_x_gradient(Objective(stack, stack.read(text))).abs().sum(dim=1)  # [2L]
    return GateImportance(
        tuple(values[0::2].tolist()),
        tuple(values[1::2].tolist()),
        len(text.written),
        time.perf_counter() - begin,
    )


def plan_gates(plan: SkipPlan | None, n_layers: int) -> Tensor:
    """[2, n_layers] gates of a draft: 0 for what the plan skips; None skips everything."""
    if plan is None:
        return torch.zeros(2, n_layers)
    kept = [[float(not plan.skips(kind, i)) for i in range(n_layers)] for kind in _KINDS]
    return torch.tensor(kept)


_KINDS = ("attention", "mlp")


def by_branch(values: Tensor) -> Tensor:
    """[N, 2, n_layers] → [2·n_layers, N], layer by layer."""
    return values.permute(2, 1, 0).flatten(0, 1).detach().cpu()


def input_x_gradient(objective: Objective) -> Tensor:
    """Gate × gradient at the whole model (Shrikumar et al. 2016): one backward. [2L, N].

    0 everywhere for the score `kl`, which has its top there.
    """
    with torch.enable_grad():
        gates = objective.ones().requires_grad_()
        attribution = InputXGradient(lambda g: objective(g).sum(dim=1)).attribute(gates)
    return by_branch(attribution[0])


def integrated_gradients(
    objective: Objective, plan: SkipPlan | None = None, *, n_steps: int = 8
) -> tuple[Tensor, float]:
    """Integrated gradients along gates going from a draft to the whole model.

    Sundararajan et al. 2017; Gauss-Legendre quadrature. The attributions of all gates sum to
    score(whole) − score(draft), but for the quadrature's error.

    Args:
        objective: of the text.
        plan: what the draft at the start of the path skips; None skips everything.
        n_steps: evaluations of the gradient.

    Returns:
        [2L, N] attributions (0 for branches that the plan keeps), and the convergence delta:
        their sum less score(whole) − score(draft), in nats.
    """
    gates = objective.ones()
    start = plan_gates(plan, objective.stack.n_layers).to(gates).expand_as(gates)
    with torch.enable_grad():
        attribution, delta = IntegratedGradients(lambda g: objective(g).sum(dim=1)).attribute(
            gates,
            start,
            n_steps=n_steps,
            internal_batch_size=max(1, _ROWS_WITH_GRADIENT // objective.n_rows),
            return_convergence_delta=True,
        )
    return by_branch(attribution[0].float()), float(delta)


def feature_ablation(objective: Objective) -> Tensor:
    """What each written token's score loses where one branch is dropped in all rows. [2L, N].

    Row i's score here is of its own token; the gates of all rows are one feature.
    """
    n_layers = objective.stack.n_layers
    gates = torch.ones(1, 2, n_layers, device=objective.stack.device)
    restarted = _FromFirstChange(objective)
    with torch.inference_mode():
        attribution = FeatureAblation(restarted).attribute(
            gates,
            baselines=0,
            feature_mask=_feature_mask(n_layers).to(gates.device),
            perturbations_per_eval=_at_once(objective),
        )
    return by_branch(attribution.reshape(-1, 2, n_layers))


def shapley_values(objective: Objective, *, seed: int = 0) -> Iterator[Tensor]:
    """Shapley values of the branches by sampling permutations (Castro et al. 2009).

    Yields one permutation's estimate after another, without end, each [2L, N] (of each token's
    score). Their mean is the estimate; its standard error is their spread ÷ √permutations. The
    values of every one sum to score(whole) − score(all skipped).
    """
    n_layers = objective.stack.n_layers
    gates = torch.ones(1, 2, n_layers, device=objective.stack.device)
    mask = _feature_mask(n_layers).to(gates.device)
    method = ShapleyValueSampling(lambda g: objective(g[:, None]))
    while True:
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # Captum draws its permutations from the global generator
            attribution = method.attribute(
                gates,
                baselines=0,
                feature_mask=mask,
                n_samples=1,
                perturbations_per_eval=_at_once(objective),
            )
        seed += 1
        yield by_branch(attribution.reshape(-1, 2, n_layers))


class _FromFirstChange:
    """The objective, run only from the first layer where a gate of the batch isn't 1."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        stack, reading = objective.stack, objective.reading
        self._streams = [reading.h]  # what each layer reads, and the final one
        with torch.inference_mode():
            for layer in range(stack.n_layers):
                h = stack.run_layer(layer, self._streams[-1], reading.context)
                self._streams.append(h)

    def __call__(self, gates: Tensor) -> Tensor:
        """[B, 2, n_layers] → scores [B, N]."""
        objective = self._objective
        objective.check()
        changed = (gates != 1).any(dim=0).any(dim=0).nonzero()
        first = int(changed[0]) if len(changed) else objective.stack.n_layers
        h = self._streams[first].expand(len(gates), -1, -1)
        context = objective.reading.context
        return objective.of_final(
            objective.stack.run_layers(h, context, first=first, gates=gates[:, None])
        )


def _feature_mask(n_layers: int) -> Tensor:
    """[1, 2, n_layers] the number of each branch, layer by layer."""
    return torch.arange(2 * n_layers).reshape(n_layers, 2).T.contiguous()[None]


def _at_once(objective: Objective) -> int:
    return max(1, _ROWS_AT_ONCE // objective.n_rows)
