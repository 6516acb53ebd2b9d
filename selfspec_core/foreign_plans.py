"""Plans as other projects write them: JSON data ↔ `ForeignPlan`, a pair of functions a format.

What a format can't hold is refused by name; nothing is rounded to what would fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .bounded_json import PlanFileError, is_number, shown
from .drafting import MAX_K
from .plan import SkipPlan

DEFAULT_KEY = "selfspec"


@dataclass(frozen=True, kw_only=True)
class ForeignPlan:
    """What a file of another project says.

    Args:
        plan: what the draft skips.
        k: drafts a round; None where the format doesn't say, or what it says isn't ours.
        confidence: stop drafting after a token less likely than this; None for no such stop.
        key: the entry's name, where the format has named entries.
        notes: what the file says that couldn't be taken up, for a person.
    """

    plan: SkipPlan
    k: int | None = None
    confidence: float | None = None
    key: str | None = None
    notes: tuple[str, ...] = ()


# -- named entries: Draft & Verify and its kin, ConfLayers ---------------------------------------


def write_branches(wanted: ForeignPlan) -> Any:
    """Draft & Verify's table: a name → lists of attention and MLP layers, from 0."""
    plan = wanted.plan
    lists = {"attention": sorted(plan.attention), "mlp": sorted(plan.mlp)}
    return {wanted.key or DEFAULT_KEY: lists}


def read_branches(data: Any, n_layers: int, key: str | None) -> ForeignPlan:
    """The entry `key`, or the only one."""
    key, entry = _entry(data, key)
    attention, mlp = (_layers(entry, kind, n_layers) for kind in ("attention", "mlp"))
    return ForeignPlan(plan=SkipPlan(n_layers, attention, mlp), key=key)


def write_layers(wanted: ForeignPlan) -> Any:
    """ConfLayers' table: a name → a list of whole layers."""
    plan = wanted.plan
    if half := plan.attention ^ plan.mlp:
        kept = "MLP" if min(half) in plan.attention else "attention"
        raise PlanFileError(
            f"ConfLayers skips whole layers only, and this plan keeps the {kept} of layer "
            f"{min(half)}: use draft-verify or knapspec"
        )
    return {wanted.key or DEFAULT_KEY: {"layers": sorted(plan.attention)}}


def read_layers(data: Any, n_layers: int, key: str | None) -> ForeignPlan:
    """The entry `key`, or the only one."""
    key, entry = _entry(data, key)
    layers = _layers(entry, "layers", n_layers)
    return ForeignPlan(plan=SkipPlan(n_layers, layers, layers), key=key)


def _entry(data: Any, key: str | None) -> tuple[str, Any]:
    """The named entry; the only one where no name is given."""
    if not isinstance(data, dict) or not data:
        raise PlanFileError(f"a table of named plans is expected, got {shown(data)}")
    names = ", ".join(shown(name) for name in list(data)[:10]) + (", …" if len(data) > 10 else "")
    if key is None:
        if len(data) > 1:
            raise PlanFileError(f"it holds {len(data)} plans; name the key of one: {names}")
        key = next(iter(data))
    if key not in data:
        raise PlanFileError(f"it has no key {shown(key)}; it has {names}")
    return key, data[key]


def _layers(entry: Any, name: str, n_layers: int) -> frozenset[int]:
    """A list of layers in an entry, none of them twice."""
    listed = entry.get(name) if isinstance(entry, dict) else None
    if not isinstance(listed, list):
        raise PlanFileError(f"a list {name!r} of layers is expected, got {shown(listed)}")
    for layer in listed:
        if type(layer) is not int or not 0 <= layer < n_layers:
            raise PlanFileError(
                f"{shown(layer)} in {name!r} is no layer: this model has layers 0 to {n_layers - 1}"
            )
    layers = frozenset(listed)
    if len(layers) < len(listed):
        raise PlanFileError(f"{name!r} names a layer twice")
    return layers


def has_entry(*names: str) -> Callable[[Any], bool]:
    """Whether data is a table of tables that have these lists."""

    def looks(data: Any) -> bool:
        first = next(iter(data.values()), None) if isinstance(data, dict) else None
        return isinstance(first, dict) and all(name in first for name in names)

    return looks


# -- KnapSpec ------------------------------------------------------------------------------------


def write_bits(wanted: ForeignPlan) -> Any:
    """KnapSpec's list a₀, m₀, a₁, m₁, …: 1 is skipped."""
    plan = wanted.plan
    return [
        int(plan.skips(kind, layer))
        for layer in range(plan.n_layers)
        for kind in ("attention", "mlp")
    ]


def read_bits(data: Any, n_layers: int, key: str | None) -> ForeignPlan:  # noqa: ARG001
    """A list that has as many entries as the model has branches."""
    if not isinstance(data, list):
        raise PlanFileError(f"a list of zeros and ones is expected, got {shown(data)}")
    if len(data) != 2 * n_layers:
        raise PlanFileError(
            f"it says {len(data)} branches, and a model of {n_layers} layers has {2 * n_layers}"
        )
    for bit in data:
        if type(bit) is not int or bit not in (0, 1):
            raise PlanFileError(
                f"only 0 (kept) and 1 (skipped) stand in the list, got {shown(bit)}"
            )
    skipped = [frozenset(i for i, bit in enumerate(data[kind::2]) if bit) for kind in (0, 1)]
    return ForeignPlan(plan=SkipPlan(n_layers, skipped[0], skipped[1]))


# -- early exit: LayerSkip, transformers -----------------------------------------------------------


def write_layerskip(wanted: ForeignPlan) -> Any:
    """LayerSkip's options: layers run before the exit, and drafts a round."""
    return {
        "generation_strategy": "self_speculative",
        "exit_layer": _exit_layer("LayerSkip", wanted.plan),
        "num_speculations": _drafts("LayerSkip", wanted.k),
    }


def read_layerskip(data: Any, n_layers: int, key: str | None) -> ForeignPlan:  # noqa: ARG001
    """The options; others of LayerSkip's may stand beside them."""
    plan = _tail(data, "exit_layer", n_layers)
    k, notes = _read_drafts(data, "num_speculations", unset=-1)
    return ForeignPlan(plan=plan, k=k, notes=notes)


def write_generation_config(wanted: ForeignPlan) -> Any:
    """Entries of transformers' `GenerationConfig`."""
    return {
        "assistant_early_exit": _exit_layer("transformers' early exit", wanted.plan),
        "num_assistant_tokens": _drafts("transformers' early exit", wanted.k),
        "num_assistant_tokens_schedule": "constant",
        # Left out it would be 0.4; 0 is off.
        "assistant_confidence_threshold": wanted.confidence or 0.0,
    }


def read_generation_config(data: Any, n_layers: int, key: str | None) -> ForeignPlan:  # noqa: ARG001
    """The entries; any others may stand beside them."""
    plan = _tail(data, "assistant_early_exit", n_layers)
    k, notes = _read_drafts(data, "num_assistant_tokens", unset=None)
    schedule = data.get("num_assistant_tokens_schedule") or "constant"
    if schedule in ("heuristic", "heuristic_transient"):
        notes += (f"its schedule {schedule!r} changes k on the way; here k is fixed",)
    elif schedule != "constant":
        raise PlanFileError(f"num_assistant_tokens_schedule {shown(schedule)} isn't known")
    confidence = data.get("assistant_confidence_threshold")
    if confidence is None:
        notes += ("it sets no confidence threshold; transformers then takes its own default",)
    elif not is_number(confidence) or not 0 <= confidence <= 1:
        raise PlanFileError(
            f"assistant_confidence_threshold must be 0 to 1, got {shown(confidence)}"
        )
    return ForeignPlan(plan=plan, k=k, confidence=confidence or None, notes=notes)


def _exit_layer(title: str, plan: SkipPlan) -> int:
    """The number of layers run before the exit, of a plan that skips exactly the rest."""
    exit_layer = min(plan.attention | plan.mlp, default=plan.n_layers)
    tail = frozenset(range(exit_layer, plan.n_layers))
    if not tail or tail != plan.attention or tail != plan.mlp or exit_layer == 0:
        raise PlanFileError(
            f"{title} leaves the model after some layer and skips all after it; this plan skips "
            f"{plan} of {plan.n_layers} layers"
        )
    return exit_layer


def _tail(data: Any, name: str, n_layers: int) -> SkipPlan:
    exit_layer = data.get(name) if isinstance(data, dict) else None
    if type(exit_layer) is not int or not 1 <= exit_layer < n_layers:
        raise PlanFileError(
            f"{name} must be 1 to {n_layers - 1} for a model of {n_layers} layers, "
            f"got {shown(exit_layer)}"
        )
    tail = frozenset(range(exit_layer, n_layers))
    return SkipPlan(n_layers, tail, tail)


def _drafts(title: str, k: int | None) -> int:
    if k is None or not 1 <= k <= MAX_K:
        raise PlanFileError(f"{title} needs k, 1 to {MAX_K}, got {k}")
    return k


def _read_drafts(
    data: Mapping[str, Any], name: str, unset: int | None
) -> tuple[int | None, tuple[str, ...]]:
    """k, and what to say where it isn't one of ours."""
    k = data.get(name)
    if k is None or k == unset:
        return None, (f"it sets no {name}",)
    if type(k) is not int or k < 1:
        raise PlanFileError(f"{name} must be a whole number from 1, got {shown(k)}")
    if k > MAX_K:
        return None, (f"its {name} is {shown(k)}; here k is at most {MAX_K}, so choose one",)
    return k, ()


def has(name: str) -> Callable[[Any], bool]:
    """Whether data is a table with this entry."""
    return lambda data: isinstance(data, dict) and name in data
