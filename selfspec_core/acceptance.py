"""The acceptance rules: pure functions of laws, drafts and noise (design §3).

No model, no cache, no state; nothing writes into a law. Rows of a window are judged all at
once; `walk` then follows the accepted ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .bounded_json import shown
from .sampling import Laws

COUPLED, REJECTION, THRESHOLD, TYPICAL = "coupled", "rejection", "threshold", "typical"
RULES = (COUPLED, REJECTION, THRESHOLD, TYPICAL)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """An acceptance rule and its settings.

    Args:
        name: one of `RULES`.
        threshold: θ of `threshold`, 0 to 1.
        epsilon, delta: of `typical`, the bound `min(ε, δ·exp(−entropy))` (Cai et al. 2024).

    Raises:
        ValueError: unknown name or a setting outside its range.
    """

    name: str = COUPLED
    threshold: float = 0.7
    epsilon: float = 0.09
    delta: float = 0.3

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise ValueError(f"unknown rule {shown(self.name)}: choose one of {', '.join(RULES)}")
        for setting in ("threshold", "epsilon", "delta"):
            if not 0 <= getattr(self, setting) <= 1:
                raise ValueError(f"{setting} must be 0 to 1, got {shown(getattr(self, setting))}")

    def lossless(self, temperature: float) -> bool:
        """Whether the output keeps the target's law."""
        return self.name in (COUPLED, REJECTION) or temperature == 0

    def identical(self, temperature: float) -> bool:
        """Whether the output is plain decoding's, token for token, with the same seed."""
        return self.name == COUPLED or temperature == 0

    @property
    def shares_noise(self) -> bool:
        """Whether draft and target draw with one noise (else the draft has its own)."""
        return self.name != REJECTION


@dataclass(frozen=True)
class Judgement:
    """What the target says of the rows of a window.

    Args:
        accepted: [k] bool, whether each draft passes, given that those before it do.
        choices: [k + 1] the target's own choice after the text of each row.
        judged: [k] probability that a lossy rule looked at; None for the lossless ones.
        bounds: [k] what `judged` has to reach; None likewise.
        ratios: [k] p/q of each draft under `rejection`; None for the others.
    """

    accepted: Tensor
    choices: Tensor
    judged: Tensor | None = None
    bounds: Tensor | None = None
    ratios: Tensor | None = None


def judge(
    rule: Rule,
    target: Laws,
    draft: Laws | None,
    tokens: Tensor,
    *,
    noise: Tensor | None,
    u: Tensor | None = None,
    parents: Tensor | None = None,
) -> Judgement:
    """Judge every draft of a window.

    Args:
        rule: the rule.
        target: laws p of the k + 1 rows; row 0 is the last committed token's.
        draft: laws q of the k drafts, None for no drafts; only `rejection` looks at them.
        tokens: [k] drafted token ids.
        noise: [k + 1, V] Gumbel noise of the target's own draws; None at temperature 0.
        u: [k] uniform numbers of `rejection`; None for other rules and at temperature 0.
        parents: [k] the row of `target` that each draft continues; None for a chain.
    """
    k = len(tokens)
    choices = target.choose(noise)
    above = torch.arange(k, device=tokens.device) if parents is None else parents
    agrees = tokens == choices[above]
    if rule.name == REJECTION and draft is not None and not target.greedy:
        assert u is not None
        # q is the law that the token was drawn from: one-hot if the draft was greedy (case 1).
        ratios = acceptance_ratio(target.log_probs[above], draft.log_law(), tokens)
        return Judgement(u < ratios, choices, ratios=ratios)
    if rule.name in (COUPLED, REJECTION):
        return Judgement(agrees, choices)
    log_judged = target.judged()[above]  # [k, V]
    judged = log_judged.gather(-1, tokens[:, None])[:, 0].exp().double()
    if rule.name == THRESHOLD:
        bounds = torch.full_like(judged, rule.threshold)
    else:
        bounds = typical_bound(log_judged, rule.epsilon, rule.delta)
    accepted = judged >= bounds
    if target.greedy:  # both lose nothing at temperature 0
        accepted = accepted & agrees if rule.name == THRESHOLD else agrees
    return Judgement(accepted, choices, judged=judged, bounds=bounds)


def walk(accepted: Sequence[bool], parents: Sequence[int] | None = None) -> list[int]:
    """The drafts that are committed: from the text on, ever an accepted child.

    Args:
        accepted: [k] whether each draft passes given its ancestors.
        parents: [k] draft index that each draft continues, -1 for the text; None is a chain.

    Returns:
        draft indices in order; the next token is drawn after the last of them.
    """
    path: list[int] = []
    for draft, passes in enumerate(accepted):
        parent = draft - 1 if parents is None else parents[draft]
        if passes and parent == (path[-1] if path else -1):
            path.append(draft)
    return path


def acceptance_ratio(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """[k] p(x)/q(x) of drafts x that were drawn from q. A draft passes if `u < p/q`, strictly.

    Args:
        log_p, log_q: [k, V] log-laws.
        tokens: [k] token ids with q(x) > 0.
    """
    index = tokens[:, None]
    return (log_p.gather(-1, index) - log_q.gather(-1, index))[:, 0].exp()


def residual(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """What a rejected draft is replaced from: (p − q)₊/Z, and Z (Leviathan et al. 2023, eq. 1).

    Where Z is 0 (p nowhere above q, by rounding) the law is p itself.

    Args:
        p, q: [..., V] laws.

    Returns:
        the residual law [..., V], and Z [...], the probability of a rejection.
    """
    excess = (p - q).clamp(min=0)
    mass = excess.sum(-1)
    law = torch.where(mass[..., None] > 0, excess / mass[..., None], p)
    return law, mass


def typical_bound(log_judged: Tensor, epsilon: float, delta: float) -> Tensor:
    """[...] Medusa's bound `min(ε, δ·exp(−H))` for laws [..., V] with entropy H in nats."""
    entropy = torch.special.entr(log_judged.exp()).sum(-1)
    return (delta * torch.exp(-entropy)).clamp(max=epsilon)


def expected_acceptance(p: Tensor, q: Tensor, rule: str, *, greedy: bool = False) -> Tensor:
    """[...] probability that a draft is accepted, for laws [..., V].

    `rejection`: Σ min(p, q). `coupled`: Σᵢ 1 / Σⱼ max(pⱼ/pᵢ, qⱼ/qᵢ), the chance that both
    Gumbel races have one winner (Daliri et al. 2024). Greedy: 1 where the likeliest agree.

    Raises:
        ValueError: for the lossy rules, whose acceptance isn't a function of p and q alone.
    """
    if greedy:
        return (p.argmax(-1) == q.argmax(-1)).to(p.dtype)
    if rule == REJECTION:
        return torch.minimum(p, q).sum(-1)
    if rule != COUPLED:
        raise ValueError(f"no formula for {rule!r}: only for {COUPLED} and {REJECTION}")
    return _coupled_agreement(p, q)


def _coupled_agreement(p: Tensor, q: Tensor) -> Tensor:
    """Σᵢ 1 / Σⱼ max(pⱼ/pᵢ, qⱼ/qᵢ) in V log V: sorted by p/q the sum splits in two.

    For i, `max(pⱼ/pᵢ, qⱼ/qᵢ)` is the first where pⱼ/qⱼ ≥ pᵢ/qᵢ and the second below.
    """
    ratio = torch.where(q > 0, p / q, torch.inf)
    ratio = torch.where((p == 0) & (q == 0), 0.0, ratio)
    order = ratio.argsort(-1)
    p, q = p.gather(-1, order), q.gather(-1, order)
    p_from = p.flip(-1).cumsum(-1).flip(-1)  # Σ of p over j at or above i
    q_below = q.cumsum(-1) - q
    both = (p > 0) & (q > 0)
    total = torch.where(both, p_from / p + q_below / q, torch.inf)
    return (1 / total).sum(-1)
