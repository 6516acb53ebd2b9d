"""A plan as a Python program: loads the model, drafts under the plan, prints the text."""

from __future__ import annotations

from .plan_files import PlanFile

_PROGRAM = '''\
"""Self-speculative decoding with a skip plan, written by SelfSpec Studio.

The model drafts with some of its layers skipped and verifies the drafts whole: the output is
its own. Needs selfspec-studio (the package selfspec_core) with torch and transformers.

    python {name} "Your prompt"
"""

import sys

from selfspec_core.engine import Engine
from selfspec_core.events import Commit, Done
from selfspec_core.loading import load
from selfspec_core.plan_files import PlanFile

MODEL = {model}
PROMPT = {prompt}
MAX_NEW_TOKENS = {max_new_tokens}
PLAN = PlanFile.from_json({plan})


def main():
    prompt = sys.argv[1] if len(sys.argv) > 1 else PROMPT
    engine = Engine(load(MODEL, dtype=PLAN.dtype or "auto"))
    PLAN.require(engine.loaded.info)
    for misfit in PLAN.misfits(engine.loaded.info):
        print(f"note: {{misfit}}", file=sys.stderr)
    engine.warm_up()
    for event in engine.stream(PLAN.request(prompt=prompt, max_new_tokens=MAX_NEW_TOKENS)):
        if isinstance(event, Commit):
            print(event.text, end="", flush=True)
        elif isinstance(event, Done):
            print()
            speed = event.tokens_per_second or 0.0
            print(f"{{len(event.tokens)}} tokens, {{speed:.1f}} a second", file=sys.stderr)


if __name__ == "__main__":
    main()
'''


def snippet(
    file: PlanFile,
    *,
    model: str | None = None,
    prompt: str = "Explain in two sentences why the sky is blue.",
    max_new_tokens: int = 128,
    name: str = "draft.py",
) -> str:
    """A program that generates with this plan, complete in itself.

    Args:
        file: the plan, its settings and its model; stands in the program as a literal.
        model: what to load, where that isn't the file's model id (a local folder's path).
        prompt: written where the command line gives none.
        max_new_tokens: the budget.
        name: what the program calls itself in its help.
    """
    return _PROGRAM.format(
        name="".join(c for c in name if c.isalnum() or c in "-_.") or "draft.py",
        model=ascii(model or file.model),
        prompt=ascii(prompt),
        max_new_tokens=int(max_new_tokens),
        plan=_literal(file.to_json()),
    )


def _literal(text: str) -> str:
    """A string as adjacent Python literals, a line each."""
    lines = text.splitlines(keepends=True)
    return "\n" + "".join(f"    {line!a}\n" for line in lines)
