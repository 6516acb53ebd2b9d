"""Choices that draft under a policy, for the confirmation to decode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analysis.confirm import Choice
from selfspec_core.plan import SkipPlan
from selfspec_core.policies import POLICIES
from selfspec_core.request import Request

LONGEST = 8
"""Most drafts a round where the policy decides how many."""


@dataclass(frozen=True)
class PolicyChoice(Choice):
    """A plan with a draft policy.

    Args:
        policy: one of `POLICIES`.
    """

    policy: str = "fixed"

    def request(self, request: Request, prompt: str) -> Request:
        """The request for one prompt."""
        return replace(super().request(request, prompt), draft_policy=self.policy)


def choices_of(plan: SkipPlan, k: int) -> Mapping[str, PolicyChoice]:
    """Every policy with a plan: `k` drafts where it is fixed, up to `LONGEST` elsewhere."""
    return {
        name: PolicyChoice(plan, k if name == "fixed" else LONGEST, policy=name)
        for name in POLICIES
    }
