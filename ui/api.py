"""What programs call: named, typed endpoints of the page's server, also tools for MCP clients.

Whatever takes time streams: an item at least each second, the last one complete in itself.
Nothing is taken on trust, and what is refused is a sentence. `gr.api` reads the types and the
docstrings, which are what the API view and MCP clients show.
"""

from __future__ import annotations

import html
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from functools import partial
from typing import Any

import gradio as gr

from selfspec_core.events import Event, Wait, to_ndjson

from .api_analysis import check_job, importance_job, search_job
from .api_files import exported, known_models
from .api_jobs import follow
from .limits import visitor_of
from .run import sentence
from .session import Studio
from .settings import Settings

UPDATE_SECONDS = 0.5
"""Every update costs the engine's own cores some milliseconds; the end is told at once."""
_A_SECOND_MORE = 0.04  # for each who runs: a full room is told less often, but each second
_SETTINGS = frozenset(each.name for each in fields(Settings))


def add_endpoints(studio: Studio) -> None:
    """Add the endpoints to the Blocks that are being built."""
    for endpoint in (_generate, _check, _importance, _search, _export, _models):
        function = endpoint(studio)
        gr.api(function, api_name=function.__name__, concurrency_limit=None)


def _returns(kind: type) -> Callable[[Any], Any]:
    """Say what an item of the stream is: Gradio reads the annotation, and knows no streams."""

    def mark(function: Any) -> Any:
        function.__annotations__["return"] = kind
        return function

    return mark


def refusal(error: Exception) -> gr.Error:
    """An error for whoever called; what nobody foresaw goes to the log."""
    # A page that shows it may take it for markup.
    return gr.Error(html.escape(sentence(error), quote=False), print_exception=False)


def _allowed(studio: Studio, length: int, k: int = 2) -> tuple[int, int]:
    """A default length and draft length that this server's limits let through."""
    return min(length, studio.limits.max_new_tokens), min(k, studio.limits.max_k)


def _settings(values: dict[str, Any], **more: Any) -> Settings:
    return Settings(**{k: v for k, v in values.items() if k in _SETTINGS} | more)


def update_seconds(studio: Studio) -> float:
    """How often to tell a program what is new, with so many at once."""
    return min(max(UPDATE_SECONDS, _A_SECOND_MORE * studio.scheduler.load.running), 1.0)


async def _analysed(
    studio: Studio,
    name: str,
    request: gr.Request,
    make: Callable[[], Any],
    *,
    heavy: bool = False,
) -> AsyncIterator[dict[str, Any]]:
    """Run an analysis for a program; `make` checks what was asked and gives the job."""
    try:
        ticket = studio.analyse(name, make(), visitor=visitor_of(request), heavy=heavy)
        async for item in follow(ticket):
            yield item
    except Exception as error:
        raise refusal(error) from None


def _generate(studio: Studio) -> Any:
    length, draft = _allowed(studio, 128)

    @_returns(str)
    async def generate(
        request: gr.Request,
        prompt: str,
        plan: str = "standard",
        k: int = draft,
        temperature: float = 0.0,
        rule: str = "coupled",
        seed: int = 0,
        max_new_tokens: int = length,
        chat: bool = True,
        threshold: float = 0.7,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        confidence: float = 0.0,
        stop: str = "",
        draft_policy: str = "fixed",
        verify_from: str = "start",
    ) -> AsyncIterator[str]:
        """Write a text, drafting with layers skipped and verifying with the whole model.

        Streams the events as NDJSON lines, each item what is new; the last item is the whole
        trace, which ends with an event of type done: text, tokens, tau, alpha, tokens per second.

        Args:
            prompt: what to answer or to continue.
            plan: what the draft skips: none, light, standard, deep, a share such as 30%, layers such as a3-12,m5,14, or a schedule such as 30%;128:50%.
            k: tokens drafted a round, 0 to 16; 0 is plain decoding.
            temperature: 0 takes the likeliest token; up to 10.
            rule: coupled (the same text as plain decoding), rejection (the same distribution), threshold or typical (lossy above temperature 0).
            seed: any whole number; the same one gives the same text.
            max_new_tokens: the exact budget.
            chat: wrap the prompt in the model's chat format, where it has one.
            threshold: of the rule threshold.
            top_k: keep this many of the likeliest tokens; 0 keeps all.
            top_p: keep the likeliest tokens up to this mass; 1 keeps all.
            min_p: drop tokens this much less likely than the likeliest; 0 drops none.
            repetition_penalty: 1 is off.
            presence_penalty: 0 is off.
            confidence: stop drafting after a token less likely than this; 0 never stops.
            stop: texts that end the generation, one a line.
            draft_policy: how many of k are drafted: fixed, confidence, adaptive or auto.
            verify_from: where verification starts: start, or first_skipped (equal up to near-ties).
        """  # noqa: E501  (one line a parameter is what Gradio reads)
        settings = _settings(locals())
        lines: list[str] = []
        try:
            # It supersedes nothing: a program may have several calls under way at once.
            _, ticket = studio.generate(settings, owner=None, visitor=visitor_of(request))
            async for batch in ticket.batches(update_seconds(studio)):
                lines.append(_lines(batch))
                if lines[-1] or any(isinstance(event, Wait) for event in batch):
                    yield lines[-1]
        except Exception as error:
            raise refusal(error) from None
        yield "".join(lines)

    return generate


def _check(studio: Studio) -> Any:
    length, draft = _allowed(studio, 48)

    @_returns(dict[str, Any])
    async def check(
        request: gr.Request,
        prompts: list[str],
        plan: str = "standard",
        k: int = draft,
        temperature: float = 0.0,
        rule: str = "coupled",
        seed: int = 0,
        max_new_tokens: int = length,
        chat: bool = True,
        threshold: float = 0.7,
    ) -> AsyncIterator[dict[str, Any]]:
        """Certify that nothing is lost: decode each prompt plainly and speculatively, and compare.

        Streams items of type progress or waiting; the last one, of type result, says for how
        many prompts the text is identical, whether the logits are the same bits, and the speed-up
        against the fastest plain decoding measured beside it.

        Args:
            prompts: what to answer, one text each.
            plan: what the draft skips, as for generate.
            k: tokens drafted a round, 1 to 16.
            temperature: 0 takes the likeliest token; up to 10.
            rule: coupled, rejection, threshold or typical.
            seed: any whole number.
            max_new_tokens: of each text.
            chat: wrap the prompts in the model's chat format, where it has one.
            threshold: of the rule threshold.
        """
        settings = _settings(locals(), prompt="-")
        make = partial(check_job, studio, settings, prompts)
        async for item in _analysed(studio, "check", request, make):
            yield item

    return check


def _importance(studio: Studio) -> Any:
    @_returns(dict[str, Any])
    async def importance(
        request: gr.Request,
        prompts: list[str],
        methods: list[str] | None = None,
        score: str = "logprob",
        plan: str = "standard",
        max_new_tokens: int = 32,
        budget_seconds: float = 10.0,
        seed: int = 0,
    ) -> AsyncIterator[dict[str, Any]]:
        """Say how much every attention and MLP branch matters for texts that the model writes.

        Streams items of type progress or waiting; the last one, of type result, has a value a
        branch for every method, and each method's rank correlation with what dropping the branch
        was measured to cost.

        Args:
            prompts: the model's greedy answers to these are looked at.
            methods: such as measured, block_influence, input_x_gradient, logit_lens; all of them if left out, which takes minutes.
            score: what is attributed: logprob, margin or kl.
            plan: the draft that integrated_gradients_plan starts from.
            max_new_tokens: of each text.
            budget_seconds: each, for the methods that sample (shapley, layer_conductance).
            seed: of sampling.
        """  # noqa: E501
        asked = {k: v for k, v in locals().items() if k not in ("request", "studio")}
        make = partial(importance_job, studio, **asked)
        async for item in _analysed(studio, "importance", request, make, heavy=True):
            yield item

    return importance


def _search(studio: Studio) -> Any:
    @_returns(dict[str, Any])
    async def search(
        request: gr.Request,
        prompts: list[str],
        seconds: float = 60.0,
        method: str = "all",
        temperature: float = 0.0,
        rule: str = "coupled",
        max_new_tokens: int = 48,
        seed: int = 0,
    ) -> AsyncIterator[dict[str, Any]]:
        """Find the skip plan and draft length that pay on the server's device.

        Streams items of type progress or waiting; the last one, of type result, has the plan, k,
        what was predicted, what was measured on prompts that the search never saw, and a plan
        file. Where nothing pays it says so: k is then 0, plain decoding.

        Args:
            prompts: two or more; every second one is kept to confirm by.
            seconds: the search's budget; measuring costs and confirming come on top.
            method: all, clasp, greedy, beam, tpe, nsga2 or random.
            temperature: of the texts.
            rule: coupled or rejection.
            max_new_tokens: of each text, 16 to 128.
            seed: any whole number.
        """
        settings = _settings(locals(), prompt="-", plan="none")
        make = partial(search_job, studio, settings, prompts, seconds=seconds, method=method)
        async for item in _analysed(studio, "search", request, make, heavy=True):
            yield item

    return search


def _export(studio: Studio) -> Any:
    @_returns(dict[str, Any])
    async def export(
        request: gr.Request,
        plan: str,
        format: str = "plan",
        k: int = 2,
        confidence: float = 0.0,
        key: str = "",
    ) -> dict[str, Any]:
        """Write a plan as a file: ours, another project's, or a Python program.

        The result has the file's name and its text.

        Args:
            plan: what the draft skips, as for generate.
            format: plan (our own file), snippet (a program), or the name of another project's format; a wrong one is answered with the list.
            k: tokens drafted a round.
            confidence: stop drafting after a token less likely than this; 0 never stops.
            key: name of the entry, in formats that have one.
        """  # noqa: E501
        try:
            studio.admit("export", visitor_of(request), light=True)
            return exported(studio, plan, format=format, k=k, confidence=confidence, key=key)
        except Exception as error:
            raise refusal(error) from None

    return export


def _models(studio: Studio) -> Any:
    @_returns(dict[str, Any])
    async def models(request: gr.Request) -> dict[str, Any]:
        """Say which model is loaded, which others this server allows, and what its limits are."""
        try:
            studio.admit("models", visitor_of(request), light=True)
            return await known_models(studio)
        except Exception as error:
            raise refusal(error) from None

    return models


def _lines(batch: list[Event]) -> str:
    return to_ndjson(event for event in batch if not isinstance(event, Wait))
