"""The endpoint for programs: `generate`, streamed as event lines, with plain typed parameters."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator

import gradio as gr

from selfspec_core.events import Event, Wait, to_ndjson

from .run import sentence
from .session import Studio
from .settings import Settings

UPDATE_SECONDS = 0.5
"""Every update costs the engine's own cores some milliseconds; the end is told at once."""
DESCRIPTION = (
    "Decode a prompt with layers skipped in the draft. Streams the events as NDJSON lines, each "
    "item what is new; the last item is the whole trace. `plan` is a preset (none, light, "
    "standard, deep), a share ('30%'), layers ('a3-12,m5,14') or a schedule ('30%;128:50%')."
)


def add_generate(studio: Studio) -> None:
    """Add the endpoint to the Blocks that are being built."""

    async def generate(
        prompt: str,
        plan: str = "standard",
        k: int = 2,
        temperature: float = 0.0,
        rule: str = "coupled",
        seed: int = 0,
        max_new_tokens: int = 128,
        chat: bool = True,
        threshold: float = 0.7,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        confidence: float = 0.0,
        stop: str = "",
    ) -> AsyncIterator[str]:
        settings = Settings(
            prompt=prompt,
            plan=plan,
            k=k,
            temperature=temperature,
            rule=rule,
            seed=seed,
            max_new_tokens=max_new_tokens,
            chat=chat,
            threshold=threshold,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            repetition_penalty=repetition_penalty,
            presence_penalty=presence_penalty,
            confidence=confidence,
            stop=stop,
        )
        lines: list[str] = []
        try:
            # Nobody's: a program may have several calls under way at once.
            _, ticket = studio.generate(settings, owner=None)
            async for batch in ticket.batches(UPDATE_SECONDS):
                lines.append(_lines(batch))
                if lines[-1] or any(isinstance(event, Wait) for event in batch):
                    yield lines[-1]
        except Exception as error:
            raise gr.Error(html.escape(sentence(error)), print_exception=False) from None
        yield "".join(lines)

    gr.api(
        generate,
        api_name="generate",
        api_description=DESCRIPTION,
        concurrency_limit=None,
    )


def _lines(batch: list[Event]) -> str:
    return to_ndjson(event for event in batch if not isinstance(event, Wait))
