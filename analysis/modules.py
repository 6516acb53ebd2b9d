"""Attribution on the real modules: what each branch writes, and the gradient that meets it.

Hooks go to the last module of a branch, as `families.py` declares it, on the modules of a
copy (`float_copy`), never on the model in use. Values are [2·n_layers, N] as in `gates.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from captum.attr import LayerConductance, LayerGradientXActivation
from torch import Tensor, nn

from .scores import Objective
from .stack import Stack

_MIN_STEPS, _PROBE_STEPS, _MAX_STEPS = 4, 16, 32
_GOLDEN = 0.6180339887  # its multiples spread evenly, wherever one stops
_OVER = 1.1  # of the budget; then the branches that are left stay NaN


def write_modules(stack: Stack) -> list[nn.Module]:
    """The last module of every branch, 2·n_layers of them, layer by layer."""
    return [branch.writes for pair in stack.branches for branch in pair]


@dataclass(frozen=True, eq=False)
class GradientXActivation:
    """Gradient × activation of what every branch writes.

    Args:
        signed: [2L, N] summed over the stream's D numbers: equal to gate × gradient.
        absolute: [2L, N] the same summed by absolute value.
    """

    signed: Tensor
    absolute: Tensor


def layer_gradient_x_activation(objective: Objective) -> GradientXActivation:
    """Captum's `LayerGradientXActivation` at all branches, in one backward."""
    modules = write_modules(objective.stack)
    method = LayerGradientXActivation(lambda h: objective.of_stream(h).sum(dim=1), modules)
    with torch.enable_grad():
        found = method.attribute(objective.reading.h.clone().requires_grad_())
    values = torch.cat([_tensor(value) for value in found])  # [2L, N, D]
    return GradientXActivation(values.sum(dim=-1).cpu(), values.abs().sum(dim=-1).cpu())


def gradient_flow(objective: Objective) -> Tensor:
    """Norm of the score's gradient by what each branch writes, [2L, N], nats a unit."""
    written: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _, __, output: written.append(output))
        for module in write_modules(objective.stack)
    ]
    try:
        with torch.enable_grad():
            h = objective.reading.h.clone().requires_grad_()
            score = objective.of_stream(h).sum()
            gradients = torch.autograd.grad(score, written)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([gradient.norm(dim=-1) for gradient in gradients]).cpu()


@dataclass(frozen=True, eq=False)
class Conductance:
    """Conductance of the branches so far.

    Args:
        done: share of the branches that are done, 1 when no more will come.
        values: [2L, N] summed over the stream's D numbers, signed; NaN where not done.
        deltas: [2L] Captum's convergence delta of each branch: its own sum less the change of
            the score. A branch is no cut of the network (the stream flows around it), so this
            is mainly what goes past the branch, and no error.
        cut_delta: the same at the final norm, through which everything flows: this is the
            error of the integration, in nats.
        change: score(text) − score(baseline), in nats, that `cut_delta` compares with.
        steps: of the integration.
    """

    done: float
    values: Tensor
    deltas: Tensor
    cut_delta: float
    change: float
    steps: int


def layer_conductance(objective: Objective, *, budget: float = 30.0) -> Iterator[Conductance]:
    """Captum's `LayerConductance` (Dhamdhere et al. 2018) of every branch; yields after each.

    The path goes from no information to the text, in the stream that the first layer reads:
    every row begins as the mean of all rows. The number of steps is what fits in the budget,
    4 to 32, as two evaluations tell. Where not even 4 fit, it stops a tenth over the budget,
    having seen branches from all over the stack.

    Args:
        objective: of a short text: one forward and backward a branch and step.
        budget: seconds.
    """
    stack, h = objective.stack, objective.reading.h  # [1, N, D]
    start = h.mean(dim=1, keepdim=True).expand_as(h)
    modules = write_modules(stack)
    final_norm = stack.final_norm
    values = torch.full((len(modules), objective.n_rows), float("nan"))
    deltas = torch.full((len(modules),), float("nan"))

    with torch.no_grad():
        change = float(objective.of_stream(h).sum() - objective.of_stream(start).sum())

    def conductance(module: nn.Module, steps: int) -> tuple[Tensor, float]:
        method = LayerConductance(lambda x: objective.of_stream(x).sum(dim=1), module)
        with torch.enable_grad():
            found = method.attribute(
                h.clone(),
                start.clone(),
                n_steps=steps,
                attribute_to_layer_input=module is final_norm,
            )
        value = _tensor(found).sum(dim=-1).cpu()  # [1, N]
        # Captum's delta, of which it would run both ends of the path again for every branch.
        return value, float(value.sum()) - change

    begin = time.perf_counter()
    conductance(final_norm, _MIN_STEPS)
    few = time.perf_counter() - begin
    conductance(final_norm, _PROBE_STEPS)
    many = time.perf_counter() - begin - few
    a_step = max((many - few) / (_PROBE_STEPS - _MIN_STEPS), 1e-6)
    a_branch = (budget - few - many) / (len(modules) + 1)
    fitting = _MIN_STEPS + int((a_branch - few) / a_step)
    steps = min(max(fitting, _MIN_STEPS), _MAX_STEPS)
    _, cut_delta = conductance(final_norm, steps)
    order = sorted(range(len(modules)), key=lambda number: number * _GOLDEN % 1)
    for done, number in enumerate(order, start=1):
        value, delta = conductance(modules[number], steps)
        values[number], deltas[number] = value[0], delta
        last = done == len(modules) or time.perf_counter() - begin > budget * _OVER
        share = 1.0 if last else done / len(modules)
        yield Conductance(share, values.clone(), deltas.clone(), cut_delta, change, steps)
        if last:
            return


def _tensor(found: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Captum wraps a layer's value in a tuple where the layer returned one."""
    tensor = found if isinstance(found, Tensor) else found[0]
    return tensor.detach()
