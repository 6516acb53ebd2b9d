"""One generation: the prefix, its cache, and the round (design §3).

Invariant between rounds, and after an exception: `cache.length == len(prefix) - 1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .acceptance import THRESHOLD, judge, residual, walk
from .cache import KVCache
from .decoder import Rows
from .detokenize import Detokenizer
from .drafting import Proposal, SkippedStack
from .events import Commit, Event, Round
from .noise import Purpose, gumbel, uniform
from .policies import Outcome
from .request import FIRST_SKIPPED, Request, RequestError
from .runtime import clock, padded
from .sampling import Laws, Sampling, laws_of
from .steering import Steering
from .trees import depths_of, own_tokens, window_parents
from .verdicts import Judged, draft_events, verdict_events

if TYPE_CHECKING:
    from .engine import Engine

PREFILL_CHUNK = 256


class Generation:
    """The state of one request and its round. `Engine.stream` drives it.

    Args:
        engine: model, tokenizer and vocabulary.
        request: what to write.
        prompt_ids: the prompt, at least one token.
        on_logits: see `Engine.stream`.
    """

    def __init__(
        self,
        engine: Engine,
        request: Request,
        prompt_ids: Sequence[int],
        *,
        on_logits: Callable[[int, Tensor], None] | None = None,
    ) -> None:
        self._engine, self._request, self._on_logits = engine, request, on_logits
        self._decoder = engine.decoder
        self._rule = request.acceptance_rule
        self._sampling, self._draft_sampling = request.sampling, request.draft_sampling
        self._window = request.window or engine.window_for(request.k)
        # Kept, as the mode is: the engine may be probed anew meanwhile.
        self._fewest = self._window if request.window or engine.pads else 1
        self._budget = min(request.max_new_tokens, engine.context - len(prompt_ids))
        self._n_prompt = len(prompt_ids)
        self._detokenizer = Detokenizer(engine.decode, engine.byte_ids)
        self._steering = Steering(engine, request, self._window, self._fewest)
        self._plainly = False  # after a rejection under `threshold` the next token is plain
        self.prefix = list(prompt_ids)
        self.cache = KVCache(engine.n_layers, len(prompt_ids) + self._budget + self._window)
        self.rounds = self.drafted = self.accepted = self.reused = 0
        self.seconds = 0.0
        self.reason: str | None = "length" if self._budget == 0 else None

    @property
    def written(self) -> list[int]:
        """The tokens written so far."""
        return self.prefix[self._n_prompt :]

    @property
    def n_written(self) -> int:
        """How many they are."""
        return len(self.prefix) - self._n_prompt

    @property
    def text(self) -> str:
        """The text written so far."""
        return self._detokenizer.text

    @torch.inference_mode()
    def prefill(self) -> Iterator[float]:
        """Fill the cache with all of the prompt but its last token, a chunk a step.

        Yields, between chunks, how much is left ÷ how much is done. The chunks depend on the
        prompt alone, so plain and speculative decoding begin from the same bits.
        """
        ids = self._ids(self.prefix[:-1])
        for chunk in ids.split(PREFILL_CHUNK):
            if len(chunk):
                self._decoder.forward(chunk, cache=self.cache)
                self.cache.advance(len(chunk))
            done = self.cache.length
            if done < len(ids):
                yield (len(ids) - done) / done

    @torch.inference_mode()
    def round(self) -> Iterator[Event]:
        """Draft, verify in one forward, commit; yields the round's events in order.

        The drafts come first, before they are verified. Where the iteration stops, for
        whatever reason, the cache covers the prefix again, but for its last token.
        """
        base = len(self.prefix) - 1
        device = self._decoder.device
        assert self.cache.length == base
        plan = self._request.plan_at(len(self.prefix), self._engine.n_layers)
        stack = SkippedStack(self._decoder, plan)
        begin = clock(device)
        try:
            proposal = self._propose(stack)
        finally:
            self.cache.rollback(base)
        drafted = clock(device)
        tokens = [] if proposal is None else proposal.tokens.tolist()
        depths = [] if proposal is None else depths_of(proposal.parents, len(tokens))
        drafts = draft_events(
            proposal,
            tokens,
            self._position(depths),
            self.rounds,
            self._text_of,
            greedy=self._sampling.greedy,
        )
        told = clock(device)
        yield from drafts
        resumed = clock(device)
        first = stack.first_skipped() if proposal and proposal.states is not None else 0
        logits = self._window_logits(proposal, first)
        window_read = clock(device)
        judged = self._judged(proposal, depths, logits)
        path = walk(judged.judgement.accepted.tolist(), judged.parents)
        final, rejected, judged = self._final(judged, path)
        verified = clock(device)
        events = list(self._commit(judged, tokens, path, final, rejected))
        end = clock(device)
        done = Round(
            round=self.rounds,
            drafted=len(tokens),
            accepted=sum(isinstance(e, Commit) and e.source == "draft" for e in events),
            committed=sum(isinstance(e, Commit) for e in events),
            plan=str(plan),
            draft_ms=(drafted - begin) * 1e3,
            verify_ms=(verified - resumed) * 1e3,
            other_ms=(told - drafted + end - verified) * 1e3,
            reused=first * len(tokens),
        )
        outcome = Outcome(
            drafted=done.drafted,
            accepted=len(path),  # as judged: the text's end may have cut it
            draft_ms=done.draft_ms,
            verify_ms=done.verify_ms,
            other_ms=done.other_ms,
            window_ms=(window_read - resumed) * 1e3,
        )
        self._steering.learn(plan, base, outcome)
        self.rounds += 1
        self.drafted += done.drafted
        self.accepted += done.accepted
        self.reused += done.reused
        self.seconds += told - begin + end - resumed
        yield from events
        yield done

    # -- draft ----------------------------------------------------------------------------------

    def _propose(self, stack: SkippedStack) -> Proposal | None:
        room = 0 if self._plainly else self._budget - self.n_written - 1
        return stack.propose(
            self._last(),
            self.cache,
            self._steering.choose(stack.plan, self.cache.length, room),
            law=self._draft_law,
            draw=self._draft_draw,
            policy=self._steering.policy,
            keep_states=self._request.verify_from == FIRST_SKIPPED,
        )

    def _draft_law(self, logits: Tensor, drafts: Sequence[Tensor]) -> Laws:
        sampling = self._draft_sampling
        own = [int(token) for token in drafts] if sampling.looks_back else []
        return self._laws(logits, sampling, [own], [len(drafts)])

    def _draft_draw(self, law: Laws, depth: int) -> Tensor:
        if law.greedy:
            return law.choose(None)
        purpose = Purpose.COUPLED if self._rule.shares_noise else Purpose.DRAFT
        return law.choose(self._noise([depth], purpose))

    # -- verify ---------------------------------------------------------------------------------

    def _window_logits(self, proposal: Proposal | None, first: int) -> Tensor:
        """[k + 1, V] of the window's rows; from branch `first` on, where states are given."""
        drafts = self._last()[:0] if proposal is None else proposal.tokens  # [k]
        parents = None if proposal is None else proposal.parents
        fewest = self._fewest if parents is None else self._window  # chains were probed
        width = max(fewest, 1 + len(drafts))
        window = padded(torch.cat([self._last(), drafts]), width)  # [W], or [k + 1] if unpadded
        rows = Rows(window, window_parents(parents, width))
        states = None if proposal is None else proposal.states
        if states is None:
            if proposal is not None and self._request.verify_from == FIRST_SKIPPED:
                raise RequestError(
                    f"the drafter {proposal.drafter!r} keeps no states of the model's own to go "
                    "on from: verify_from must be 'start'"
                )
            logits = self._decoder.logits(rows, cache=self.cache)
        else:
            # The keys and values of the branches before are the draft's, which are the target's.
            h, context = self._decoder.enter(rows, self.cache)
            h[:, : states.shape[1]] = states
            h = self._decoder.run_branches(h, context, first)
            logits = self._decoder.readout(h)
        return logits[0, : len(drafts) + 1]

    def _judged(self, proposal: Proposal | None, depths: Sequence[int], logits: Tensor) -> Judged:
        """Let the rule judge the rows' logits [k + 1, V]."""
        drafts = self._last()[:0] if proposal is None else proposal.tokens  # [k]
        parents = None if proposal is None else proposal.parents
        k = len(drafts)
        row_depths = [0, *(depth + 1 for depth in depths)]
        own = own_tokens(drafts, parents) if self._sampling.looks_back else [[]] * (k + 1)
        target = self._laws(logits, self._sampling, own, row_depths)
        above = self._ids([p + 1 for p in parents or range(-1, k - 1)])
        noise = u = None
        if not target.greedy:
            shared = self._rule.shares_noise
            noise = self._noise(row_depths, Purpose.COUPLED if shared else Purpose.TARGET)
            if not shared and k:
                positions = self._ids(self._position(depths))
                u = uniform(self._request.seed, positions, drafts, Purpose.ACCEPT)
        judgement = judge(
            self._rule,
            target,
            None if proposal is None else proposal.laws,
            drafts,
            noise=noise,
            u=u,
            parents=above,
        )
        return Judged(
            round=self.rounds,
            positions=self._position(depths),
            proposal=proposal,
            above=above,
            target=target,
            judgement=judgement,
            noise=noise,
            u=u,
            logits=logits,
        )

    def _final(self, judged: Judged, path: Sequence[int]) -> tuple[int, int | None, Judged]:
        """The token after the accepted path, and the draft that was rejected there, if any."""
        row = path[-1] + 1 if path else 0
        children = (judged.above == row).nonzero()[:, 0].tolist()
        rejected = next(iter(children), None)
        if rejected is None or self._rule.shares_noise or judged.target.greedy:
            return int(judged.judgement.choices[row]), rejected, judged
        assert judged.proposal is not None
        assert judged.noise is not None
        if len(children) > 1:
            raise ValueError("the rule 'rejection' judges one draft at a place, not siblings")
        law, mass = residual(judged.target.probs()[row], judged.proposal.laws.probs()[rejected])
        token = int((law.log() + judged.noise[row]).argmax())
        return token, rejected, replace(judged, residual=(law, mass))

    # -- commit ---------------------------------------------------------------------------------

    def _commit(
        self,
        judged: Judged,
        tokens: Sequence[int],
        path: Sequence[int],
        final: int,
        rejected: int | None,
    ) -> Iterator[Event]:
        """Take what is accepted into the prefix, up to the text's end; yields what happened."""
        closing = "plain" if not tokens else "bonus" if rejected is None else "correction"
        rows = [0, *(draft + 1 for draft in path)]
        taken = [*(tokens[draft] for draft in path), final]
        sources = ["draft"] * len(path) + [closing]
        ps = judged.target.log_probs[rows, taken].exp().tolist()
        commits: list[Commit] = []
        try:
            for row, token, source, p in zip(rows, taken, sources, ps, strict=True):
                text = self._take(token)
                commits.append(
                    Commit(
                        round=self.rounds,
                        position=len(self.prefix) - 1,
                        token=token,
                        text=text,
                        source=source,
                        special=token in self._engine.special_ids,
                        p=p,
                    )
                )
                if self._on_logits is not None:
                    self._on_logits(len(self.prefix) - 1, judged.logits[row])
                if self.reason is not None:
                    break
        except BaseException:  # so that the cache covers the prefix here too
            del self.prefix[self.cache.length + 1 :]
            raise
        # The last committed token has no keys and values yet; the others' rows are kept.
        self.cache.keep(rows[: len(commits)])
        kept = sum(commit.source == "draft" for commit in commits)
        reached = len(commits) == len(taken)
        self._plainly = self._rule.name == THRESHOLD and rejected is not None
        statuses = ["unreached"] * len(tokens)
        for draft in path[:kept]:
            statuses[draft] = "accepted"
        if rejected is not None and reached:
            statuses[rejected] = "rejected"
        yield from verdict_events(judged, tokens, statuses, self._text_of)
        yield from commits

    def _take(self, token: int) -> str:
        """Append a token; sets `reason` where it ends the text. Returns the text it adds."""
        before = self._detokenizer.text
        self.prefix.append(token)
        text = self._detokenizer.push(token)
        longest = max(map(len, self._request.stop), default=0)
        tail = before[max(0, len(before) - longest + 1) :] + text if longest else ""
        if token in self._engine.end_ids:
            self.reason = "eos"
        elif any(stop in tail for stop in self._request.stop):
            self.reason = "stop"
        elif self.n_written == self._budget:
            self.reason = "length"
        return text if self.reason is None else text + self._detokenizer.flush()

    # -- parts ----------------------------------------------------------------------------------

    def _last(self) -> Tensor:
        """[1] the last committed token."""
        return self._ids(self.prefix[-1:])

    def _ids(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self._decoder.device)

    def _position(self, depths: Sequence[int]) -> list[int]:
        """Positions in the text of tokens so many past the prefix."""
        return [len(self.prefix) + depth for depth in depths]

    def _text_of(self, token: int) -> str:
        return self._engine.text_of(token)

    def _noise(self, depths: Sequence[int], purpose: Purpose) -> Tensor:
        """[R, V] Gumbel noise for the tokens so many past the prefix."""
        positions = self._ids(self._position(depths))
        return gumbel(self._request.seed, positions, self._engine.vocab_size, purpose)

    def _laws(
        self,
        logits: Tensor,
        sampling: Sampling,
        own: Sequence[Sequence[int]],
        depths: Sequence[int],
    ) -> Laws:
        """Laws of rows [R, V], whose text is the prefix and their own ancestors' tokens."""
        return laws_of(
            logits[:, : self._engine.vocab_size],
            sampling,
            histories=[self.prefix + list(o) for o in own] if sampling.looks_back else None,
            n_new=[self.n_written + depth for depth in depths],
            prompt_length=self._n_prompt,
            end_ids=self._engine.end_ids,
        )
