"""The round loop: prefill, draft, verify, commit; yields events (design §3, §4).

Everything that decodes — page, command line, benchmark, tests — goes through `Engine.stream`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .cache import round_up
from .decoder import ResidualDecoder
from .detokenize import byte_fallback_ids, token_texts
from .drafting import MAX_K
from .events import Done, Event, Round, Start, Wait
from .execution import (
    COMPILED,
    EAGER,
    Building,
    check_mode,
    make_compiled,
    make_eager,
    why_not_compiled,
)
from .experience import Experience, corners
from .generated import Generated
from .generation import Generation
from .loading import LoadedModel
from .native.build import Unavailable, is_built
from .pages import give_back
from .plan import SkipPlan
from .request import Request, RequestError
from .runtime import WINDOW_MULTIPLE, Probe, clock, peak_memory_mb, probe, time_rows

__all__ = ["Engine", "Generated", "Request", "RequestError"]

WARM_UP_ROUNDS, LONG_WARM_UP = 4, 0.5
"""Rounds of a plan that are timed at the warm-up, and seconds after which fewer will do."""

WARM_UP_ROWS = (1, 2, 4, 8, 17)
"""Rows whose forwards are timed at the warm-up, where windows aren't padded."""


class Engine:
    """Decodes with one loaded model, for any number of people: it keeps nothing of a request.

    Args:
        loaded: the model, its tokenizer and family. Its weights are packed in place; a deep copy
            of the model has plain ones again.
        mode: "compiled" runs branches in kernels built for this machine, "eager" runs
            transformers' modules; "auto" is compiled where that can be had. What can't be compiled
            runs eagerly, and `execution` says why.
        background: where the kernels have yet to be built, build them in a thread and serve
            eagerly until then; the change comes with the first request that finds the engine idle.

    Raises:
        ValueError: an unknown mode.
    """

    def __init__(
        self, loaded: LoadedModel, *, mode: str = "auto", background: bool = False
    ) -> None:
        self.loaded = loaded
        self.decoder = ResidualDecoder(loaded.model, loaded.family)
        self.mode = EAGER
        """"eager" or "compiled": how forwards are executed now."""
        self.execution = ""
        """The same in words, and why."""
        self._building: Building | None = None
        self._active = 0
        self._choose(check_mode(mode), background)
        self.tokenizer = loaded.tokenizer
        sizes = [self.decoder.vocab_size]
        if self.tokenizer is not None:  # an embedding may be padded past the vocabulary (case 15)
            sizes.append(len(self.tokenizer))
        self.vocab_size = min(sizes)
        self.end_ids = _end_ids(loaded.model)
        """Token ids that end a text; may be none."""
        self.special_ids = frozenset(getattr(self.tokenizer, "all_special_ids", ()))
        """Control tokens, which clean text leaves out."""
        self.byte_ids = byte_fallback_ids(self.tokenizer)
        """Byte-fallback tokens, whose text depends on the bytes around them."""
        self.guarantee: Probe | None = None
        """What `probe` measured of the fixed window; None before."""
        self.experience = Experience(self.decoder.n_layers)
        """What rounds cost here and how often drafts were kept; the policy `auto` goes by it."""
        self._texts: dict[int, str] = {}

    def _choose(self, mode: str, background: bool) -> None:
        reason = None if mode == EAGER else why_not_compiled(self.decoder)
        if mode == EAGER or reason is not None:
            self._stay_eager(reason)
        elif background and not is_built():
            self._building = Building()
            self.execution = "eager: kernels are being built for this machine"
        else:
            self._compile()

    def _compile(self) -> None:
        try:
            self.execution = f"{COMPILED}: {make_compiled(self.decoder)}"
            self.mode = COMPILED
        except Unavailable as reason:
            self._stay_eager(str(reason))

    def _stay_eager(self, reason: str | None) -> None:
        done = make_eager(self.decoder)
        self.execution = f"{EAGER}: {done}" + (f"; not compiled: {reason}" if reason else "")

    @property
    def building(self) -> bool:
        """Whether a change to compiled execution is still to come."""
        return self._building is not None

    def settle(self) -> bool:
        """Change to compiled execution if its kernels are ready and nobody is being served.

        Called by `stream`; who serves others may call it while idle. A request stays in the mode
        it began in. Returns whether anything changed.
        """
        building = self._building
        if building is None or not building.over or self._active:
            return False
        self._building = None
        if building.failed:
            self._stay_eager(building.failed)
        else:
            self._compile()
        if self.guarantee is not None:
            self.probe(tuple(self.guarantee.rows))
        return True

    # -- what it is -----------------------------------------------------------------------------

    @property
    def n_layers(self) -> int:
        """Decoder layers of the model."""
        return self.decoder.n_layers

    @property
    def context(self) -> int:
        """Most tokens of prompt and text together."""
        return self.decoder.max_positions or 1 << 30

    @property
    def default_k(self) -> int:
        """Drafts a round where nobody chose: 4 on a GPU, 2 on a CPU."""
        return 4 if self.decoder.device.type == "cuda" else 2

    def window_for(self, k: int) -> int:
        """W, rows of every verification forward: the next multiple of 4 at or above k + 1.

        Where `probe` found that the width itself changes a token's logits, one width serves
        every k, so that the text doesn't change with k. Where it found that no number of rows
        does, W is k + 1, and rounds with fewer drafts have fewer rows.
        """
        if self.guarantee is not None and not self.guarantee.widths:
            k = MAX_K
        return round_up(k + 1, self.window_multiple)

    def plain_window_for(self, k: int) -> int:
        """Rows of the plain decoding whose text is that of `k` drafts a round, bit for bit."""
        return self.window_for(k if self.pads else 0)

    @property
    def pads(self) -> bool:
        """Whether windows are filled up with rows that nobody reads, so that bits stay the same."""
        measured = self.guarantee is not None and self.guarantee.any_rows
        return not (measured and self.mode == COMPILED)

    @property
    def window_multiple(self) -> int:
        """What every window's rows are a multiple of: 4, or 1 without padding."""
        return WINDOW_MULTIPLE if self.pads else 1

    def probe(self, widths: tuple[int, ...] = (4, 8, 20)) -> Probe:
        """Measure what this device guarantees of the fixed window, and keep to it (seconds)."""
        self.guarantee = probe(self.decoder, widths)
        return self.guarantee

    def warm_up(self) -> float:
        """Run the shapes of a first request once, so that it isn't a cold one. Seconds taken."""
        begin = clock(self.decoder.device)
        if self.mode == COMPILED and self.guarantee is None:
            self.probe()  # it may find that windows need no padding
        ids = tuple(range(2, min(12, self.vocab_size)))[: max(self.context // 2, 1)]
        plan = SkipPlan.preset("standard", self.n_layers)
        budget = min(8, self.context - len(ids))
        for k in (self.default_k, 0):
            self.generate(Request(prompt_ids=ids, plan=plan, k=k, max_new_tokens=budget))
        if not self.pads:
            self.experience.learn_rows(self.execution, time_rows(self.decoder, WARM_UP_ROWS))
        self._learn_costs(ids, budget)
        give_back()
        return clock(self.decoder.device) - begin

    def _learn_costs(self, ids: tuple[int, ...], budget: int) -> None:
        """A few rounds under the plans from which every other plan's costs are predicted."""
        for plan in corners(self.n_layers):
            request = Request(prompt_ids=ids, plan=plan, k=self.default_k, max_new_tokens=budget)
            begin, rounds = clock(self.decoder.device), 0
            for event in self.stream(request):
                rounds += isinstance(event, Round)
                slow = clock(self.decoder.device) - begin > LONG_WARM_UP
                if rounds == WARM_UP_ROUNDS or (rounds and slow):
                    break
        self.experience.forget_texts()

    # -- decoding -------------------------------------------------------------------------------

    def stream(
        self,
        request: Request,
        cancelled: Callable[[], bool] = lambda: False,
        *,
        on_logits: Callable[[int, torch.Tensor], None] | None = None,
    ) -> Iterator[Event]:
        """Decode, yielding events as they happen.

        Each step of the iterator does at most one round, or one chunk of the prompt. An
        exception in a round yields `Done` with the reason "error" and is then raised.

        Args:
            request: what to write.
            cancelled: asked before every round; True ends the text with reason "cancelled".
            on_logits: called with the position of every committed token and the logits [V] of
                the window row that it was taken from (for `check`).

        Raises:
            RequestError: the prompt is empty or too long, or the plan is another model's.
        """
        prompt_ids = self.encode(request)
        self.settle()
        self._active += 1
        try:
            yield from self._stream(request, prompt_ids, cancelled, on_logits)
        finally:
            self._active -= 1

    def _stream(
        self,
        request: Request,
        prompt_ids: list[int],
        cancelled: Callable[[], bool],
        on_logits: Callable[[int, torch.Tensor], None] | None,
    ) -> Iterator[Event]:
        yield self._start(request, prompt_ids)
        generation = Generation(self, request, prompt_ids, on_logits=on_logits)
        device = self.decoder.device
        prefill = 0.0
        try:
            if generation.reason is None:
                steps = generation.prefill()
                while True:
                    if cancelled():
                        generation.reason = "cancelled"
                        break
                    begin = clock(device)
                    left = next(steps, None)
                    prefill += clock(device) - begin
                    if left is None:
                        break
                    yield Wait(place=0, expected_seconds=left * prefill)
            while generation.reason is None:
                if cancelled():
                    generation.reason = "cancelled"
                    break
                yield from generation.round()
        except Exception as error:
            yield self._done(generation, "error", str(error) or repr(error), prefill)
            raise
        yield self._done(generation, generation.reason, "", prefill)

    def generate(self, request: Request, **options: Any) -> Generated:
        """`stream`, collected: same arguments, same errors."""
        events = self.stream(request, **options)
        return Generated(tuple(event for event in events if not isinstance(event, Wait)))

    # -- text and ids ---------------------------------------------------------------------------

    def encode(self, request: Request) -> list[int]:
        """The prompt's ids, checked against the vocabulary and the context.

        Raises:
            RequestError: nothing in it, past the vocabulary, or longer than the context.
        """
        plan = request.plan
        if plan is not None and plan.n_layers != self.n_layers:
            raise RequestError(
                f"the plan is for {plan.n_layers} layers and this model has {self.n_layers}"
            )
        if request.prompt_ids is not None:
            ids = list(request.prompt_ids)
        elif self.tokenizer is None:
            raise RequestError("this model has no tokenizer: give prompt_ids")
        else:
            ids = self._encode_text(request)
        if not ids:
            raise RequestError("the prompt is empty: write at least one word")
        if bad := [i for i in ids if not 0 <= i < self.decoder.vocab_size]:
            raise RequestError(
                f"token id {bad[0]} doesn't exist: ids are 0 to {self.decoder.vocab_size - 1}"
            )
        if len(ids) + min(request.max_new_tokens, 1) > self.context:
            raise RequestError(
                f"the prompt has {len(ids)} tokens and this model holds {self.context}: "
                f"shorten it to {self.context - 1} at most"
            )
        return ids

    def text_of(self, token: int) -> str:
        """A token's own text."""
        if token not in self._texts:
            self._texts[token] = token_texts(self.tokenizer, [token])[0]
        return self._texts[token]

    def decode(self, ids: list[int]) -> str:
        """The text of ids together, as the tokenizer decodes them."""
        if self.tokenizer is None:
            return "".join(self.text_of(i) for i in ids)
        text: str = self.tokenizer.decode(ids)
        return text

    def _encode_text(self, request: Request) -> list[int]:
        has_template = bool(getattr(self.tokenizer, "chat_template", None))
        if request.chat and not has_template:
            raise RequestError("this model has no chat template: turn the chat format off")
        text = request.prompt
        if not text.strip():
            raise RequestError("the prompt is empty: write at least one word")
        if has_template and request.chat is not False:
            message = [{"role": "user", "content": text}]
            text = self.tokenizer.apply_chat_template(
                message, tokenize=False, add_generation_prompt=True
            )
            return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return list(self.tokenizer(text)["input_ids"])

    # -- first and last event -------------------------------------------------------------------

    def _start(self, request: Request, prompt_ids: list[int]) -> Start:
        rule = request.acceptance_rule
        return Start(
            model={**self.loaded.info.to_dict(), "execution": self.mode},
            plan=str(request.plan or SkipPlan(self.n_layers)),
            k=request.k,
            policy=str(request.policy),
            verify_from=request.verify_from,
            rule=rule.name,
            threshold=rule.threshold if rule.name == "threshold" else None,
            lossless=rule.lossless(request.sampling.temperature),
            sampling=request.sampling.to_dict(),
            draft_temperature=request.draft_sampling.temperature,
            seed=request.seed,
            window=request.window or self.window_for(request.k),
            max_new_tokens=request.max_new_tokens,
            stop=request.stop,
            prompt=request.prompt if request.prompt_ids is None else self.decode(prompt_ids),
            prompt_ids=tuple(prompt_ids),
        )

    def _done(
        self, generation: Generation, reason: str | None, message: str, prefill: float
    ) -> Done:
        tokens = tuple(generation.written)
        rounds, drafted = generation.rounds, generation.drafted
        return Done(
            reason=reason or "error",
            message=message,
            text=generation.text,
            tokens=tokens,
            tau=len(tokens) / rounds if rounds else None,
            alpha=generation.accepted / drafted if drafted else None,
            drafted=drafted,
            accepted=generation.accepted,
            rounds=rounds,
            prefill_seconds=prefill,
            seconds=generation.seconds,
            tokens_per_second=len(tokens) / generation.seconds if rounds else None,
            peak_memory_mb=peak_memory_mb(self.decoder.device),
            weights_mb=self.loaded.info.weights_mb,
            reused=generation.reused,
        )


def _end_ids(model: Any) -> tuple[int, ...]:
    """Token ids that end a text: the generation config's, else the config's; there may be none."""
    for config in (getattr(model, "generation_config", None), model.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(ids) if isinstance(ids, list | tuple) else (int(ids),)
    return ()
