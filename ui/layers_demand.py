"""What a page asks the Layers panel for, checked: anybody may send anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .words import msg, say

COLUMNS: dict[str, str] = {
    "lost_agreement": "measured",
    "kl": "measured",
    "logprob_drop": "measured",
    "input_x_gradient": "input_x_gradient",
    "integrated_gradients": "integrated_gradients",
    "integrated_gradients_plan": "integrated_gradients_plan",
    "feature_ablation": "feature_ablation",
    "shapley": "shapley",
    "layer_gradient_x_activation": "layer_gradient_x_activation",
    "layer_conductance": "layer_conductance",
    "gradient_flow": "gradient_flow",
    "block_influence": "block_influence",
    "logit_lens": "logit_lens",
}
"""What the heatmap can show → the method of `analysis` that makes it."""
VIEWS = ("attention", "gradient_flow", "block_influence", "logit_lens")
"""The pictures below the heatmap; each is a method of that name."""
SCORES = ("logprob", "margin", "kl")
SOURCES = ("run", "prompt")
ROWS = (8, 16, 32, 64, 128)
"""How many words may be looked at."""
BUDGETS = (5, 10, 20, 60)
"""Seconds for the methods that fill a budget."""
STEPS = (8, 16, 32, 64, 128)
"""Evaluations of the gradient for integrated gradients."""
STEPPED = ("integrated_gradients", "integrated_gradients_plan")
"""The methods that take steps."""
PLANNED = "integrated_gradients_plan"
"""The one method that begins at the draft."""
BUDGETED = ("shapley", "layer_conductance")
SILENT = {"kl": ("input_x_gradient", "layer_gradient_x_activation", "gradient_flow")}
"""Score → methods that it makes 0 everywhere: gradients at the whole model, where it peaks."""
UNSCORED = ("measured", "block_influence", "logit_lens", "attention")
"""Methods that no score enters."""
COPYLESS = ("measured", "block_influence", "logit_lens")
"""Methods that need no float32 copy of the model."""
MAX_PROMPT = 512
"""Tokens of the prompt that are read; reading costs quadratically."""
_MAX_IDS = 1 << 16


class DemandError(ValueError):
    """What was asked for can't be had; `words` is the sentence as the page takes it."""

    def __init__(self, key: str, **args: Any) -> None:
        self.words = msg(f"layers.error.{key}", **args)
        super().__init__(say(self.words))


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A checked wish.

    Args:
        source: "run" for the text that the browser has from Decode, "prompt" for `prompt` alone.
        ids: prompt and written tokens of the run; empty for the prompt alone.
        prompt_length: how many of them are the prompt's.
        weights: hash of the weights that wrote the text; "" where that isn't known.
        prompt: as it stands in Decode.
        column: of `COLUMNS`, for the heatmap.
        view: of `VIEWS`, below it, or None.
        score: of `SCORES`.
        rows: words looked at, at most.
        budget: seconds for methods that fill one.
        ig_steps: of `STEPS`, for `STEPPED`.
        plan: the plan's text, and
        step: which plan of a length schedule.
    """

    source: str
    ids: tuple[int, ...]
    prompt_length: int
    weights: str
    prompt: str
    column: str
    view: str | None
    score: str
    rows: int
    budget: int
    plan: str
    step: int
    ig_steps: int = STEPS[0]

    @property
    def methods(self) -> tuple[str, ...]:
        """What has to be run, first what is looked at: the truth comes last."""
        wanted = [COLUMNS[self.column], self.view, "measured"]
        silent = SILENT.get(self.score, ())
        return tuple(dict.fromkeys(name for name in wanted if name and name not in silent))

    @property
    def heavy(self) -> bool:
        """Whether a float32 copy may have to be made for it."""
        return not set(self.methods) <= set(COPYLESS)


def read_demand(sent: Any, *, plan: Any, prompt: Any) -> Demand:
    """Check what a page sent.

    Args:
        sent: the event's data.
        plan: the plan as text; read when the model is known.
        prompt: the prompt as it stands in Decode.

    Raises:
        DemandError: it isn't what a page sends; says what is allowed.
    """
    if not isinstance(sent, Mapping):
        raise DemandError("nonsense", what="data")
    source = _one_of("source", sent.get("source"), SOURCES)
    column = _one_of("column", sent.get("column"), tuple(COLUMNS))
    score = _one_of("score", sent.get("score"), SCORES)
    if COLUMNS[column] in SILENT.get(score, ()):
        raise DemandError("silent", method=msg(f"layers.method.{column}.name"))
    ids, prompt_length = _ids(sent) if source == "run" else ((), 0)
    view = sent.get("view")
    return Demand(
        source=source,
        ids=ids,
        prompt_length=prompt_length,
        weights=str(sent.get("weights") or "")[:128],
        prompt=prompt if isinstance(prompt, str) else "",
        column=column,
        view=None if view is None else _one_of("view", view, VIEWS),
        score=score,
        rows=_one_of("rows", sent.get("rows"), ROWS),
        budget=_one_of("budget", sent.get("budget"), BUDGETS),
        plan=plan if isinstance(plan, str) else "",
        step=_one_of("step", sent.get("step", 0), tuple(range(64))),
        ig_steps=_one_of("ig_steps", sent.get("ig_steps", STEPS[0]), STEPS),
    )


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    # `True == 1`, and a list isn't hashable: compare types as well, and never hash.
    for one in allowed:
        if type(value) is type(one) and value == one:
            return one
    most = allowed if len(allowed) < 20 else (allowed[0], "…", allowed[-1])
    raise DemandError("choice", what=name, allowed=", ".join(map(str, most)))


def _ids(sent: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    prompt, written = sent.get("prompt_ids"), sent.get("tokens")
    for ids in (prompt, written):
        if not isinstance(ids, list) or len(ids) > _MAX_IDS:
            raise DemandError("nonsense", what="ids")
        if any(type(i) is not int or not 0 <= i < 2**31 for i in ids):
            raise DemandError("nonsense", what="ids")
    if not prompt or not written:
        raise DemandError("nothing_written")
    return (*prompt, *written), len(prompt)
