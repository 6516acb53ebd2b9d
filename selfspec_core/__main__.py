"""The command line of the core: `python -m selfspec_core generate|check|models`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

from . import matrix
from .acceptance import RULES
from .check import check, summary
from .command_line import add_prompts, add_seed, model_options, run
from .engine import Engine
from .events import Wait
from .execution import await_kernels
from .families import FAMILIES
from .loading import Progress, available, load
from .plan import NOTATION, PRESETS, parse_plan
from .policies import MAX_K, POLICIES
from .prompts import read_prompts
from .request import START, VERIFY_FROM, Request
from .sampling import Sampling
from .terminal import Printer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. Wrong input is a sentence and status 2."""
    return run(_parser(), arguments)


# -- commands --------------------------------------------------------------------------------


def generate(options: argparse.Namespace) -> int:
    """Stream one generation: coloured text, or NDJSON events with --json."""
    engine = _engine(options)
    request = _request(options, engine, options.prompt)
    if options.policy == "auto":
        engine.warm_up()  # it measures what drafts cost here
    printer = Printer(Console(soft_wrap=True))
    for event in engine.stream(request):
        if isinstance(event, Wait):
            continue
        if options.json:
            print(event.to_json(), flush=True)
        else:
            printer.show(event)
    return 0


def check_command(options: argparse.Namespace) -> int:
    """Certify that speculative output is plain decoding's; or run the grid with --matrix."""
    prompts = read_prompts(options.prompts, options.limit)
    if options.matrix or options.covering:
        return matrix.run(options, prompts)
    engine = _engine(options)
    requests = [_request(options, engine, prompt) for prompt in prompts]
    if options.k == 0:
        raise ValueError("check compares drafts with plain decoding: k must be 1 or more")
    print(engine.probe().sentence(), file=sys.stderr)
    engine.warm_up()
    results = []
    for i, checked in enumerate(check(engine, requests), start=1):
        results.append(checked)
        told = "identical" if checked.identical else f"DIFFERS: {checked.difference}"
        print(f"prompt {i}/{len(requests)}: {told}", file=sys.stderr, flush=True)
    figures = summary(results)
    if options.json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            print(f"{key:>16}  {value:.3f}" if isinstance(value, float) else f"{key:>16}  {value}")
    broken = figures["promised"] and figures["identical"] < figures["prompts"]
    return 1 if broken else 0


def models(options: argparse.Namespace) -> int:
    """List what can be loaded, and which families."""
    found = available()
    families = [
        {"name": family.name, "model_types": list(family.model_types)} for family in FAMILIES
    ]
    if options.json:
        print(json.dumps({"models": [asdict(m) for m in found], "families": families}))
        return 0
    print("Models that can be named with --model:")
    for model in found:
        print(f"  {model.name}  ({model.family}; {model.detail})")
    print("and any hub id (org/name), local folder or GGUF file of these families:")
    for family in FAMILIES:
        print(f"  {family.name}  ({', '.join(family.model_types)})")
    return 0


# -- options ---------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    common = model_options()
    add_seed(common)

    decoding = argparse.ArgumentParser(add_help=False)
    add = decoding.add_argument
    add("--skip", default="light", metavar="PLAN", help=_escaped(_PLAN_HELP))
    add("--k", type=int, help=f"drafts a round, 0–{MAX_K}; default 2 on a CPU, 4 on a GPU")
    add("--rule", default="coupled", choices=RULES, help="acceptance rule (default coupled)")
    add("--threshold", type=float, default=0.7, help="θ of the rule threshold (default 0.7)")
    add("--policy", choices=POLICIES, help=_POLICY_HELP)
    add("--confidence", type=float, help="stop drafting after a token less likely than this")
    add("--verify-from", default=START, choices=VERIFY_FROM, help=_VERIFY_HELP)
    add("--temperature", type=float, default=0.0, help="0 (default) takes the likeliest token")
    add("--top-k", type=int, default=0, help="keep the k likeliest tokens (0, the default: all)")
    add("--top-p", type=float, default=1.0, help="keep the likeliest up to this mass (default 1)")
    add("--min-p", type=float, default=0.0, help="drop tokens this much less likely (default 0)")
    add("--repetition-penalty", type=float, default=1.0, help="default 1, off")
    add("--presence-penalty", type=float, default=0.0, help="default 0, off")
    add("--min-new-tokens", type=int, default=0, help="no end before so many tokens")
    add("--max-new-tokens", type=int, default=128, help="exact budget (default 128)")
    add("--stop", action="append", default=[], metavar="TEXT", help="end at this text; repeatable")
    add("--window", type=int, help="rows of a verification forward (default: chosen from k)")
    add(
        "--chat",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="wrap the prompt in the model's chat format (default: where it has one)",
    )

    parser = argparse.ArgumentParser(
        prog="python -m selfspec_core",
        description="Self-speculative decoding: the model drafts with some of its own layers "
        "skipped, then checks the drafts whole. The output stays its own.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("generate", parents=[common, decoding], help="write a text")
    command.add_argument("--prompt", required=True, help="what to answer or continue")
    command.set_defaults(run=generate)

    command = commands.add_parser(
        "check", parents=[common, decoding], help="certify that nothing is lost"
    )
    add = command.add_argument
    add_prompts(command, limit=20)
    add("--matrix", action="store_true", help="the whole grid: 288 settings on every prompt")
    add("--covering", action="store_true", help="40 settings of the grid, one prompt each")
    command.set_defaults(run=check_command)

    command = commands.add_parser("models", parents=[common], help="list what can be loaded")
    command.set_defaults(run=models)
    return parser


_PLAN_HELP = (
    f"what the draft skips: {NOTATION}; or {', '.join(PRESETS)}; or a share such as 30%; or "
    "schedule (30% of short texts, 50% from 128 tokens on, or written 30%;128:50%). Default light"
)


_POLICY_HELP = (
    "how many of the k drafts are made: fixed (all; the default), confidence (none after an "
    "unlikely one), adaptive (the same, and the threshold moves with acceptance) or auto (as many "
    "as pay just now, or none)"
)

_VERIFY_HELP = (
    "start (default), or first_skipped: go on from the draft's own states at the first skipped "
    "branch; output is then equal to plain decoding's up to near-ties"
)


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _engine(options: argparse.Namespace) -> Engine:
    engine = Engine(
        load(options.model, device=options.device, dtype=options.dtype, progress=_report),
        mode=options.mode,
        background=True,
    )
    await_kernels(engine, lambda said: print(said, file=sys.stderr, flush=True))
    print(engine.execution, file=sys.stderr)
    if getattr(options, "k", 0) is None:
        options.k = engine.default_k
        if options.policy == "auto":  # whatever fits the window
            options.k = min(engine.window_for(options.k) - 1, MAX_K)
    return engine


def _report(progress: Progress) -> None:
    print(progress.message, file=sys.stderr, flush=True)


def _request(options: argparse.Namespace, engine: Engine, prompt: str) -> Request:
    return Request(
        prompt=prompt,
        chat=options.chat,
        plan=parse_plan(options.skip, engine.n_layers),
        k=options.k,
        draft_policy=options.policy,
        confidence=options.confidence,
        verify_from=options.verify_from,
        rule=options.rule,
        threshold=options.threshold,
        sampling=Sampling(
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            repetition_penalty=options.repetition_penalty,
            presence_penalty=options.presence_penalty,
            min_new_tokens=options.min_new_tokens,
        ),
        max_new_tokens=options.max_new_tokens,
        stop=tuple(options.stop),
        seed=options.seed,
        window=options.window,
    )


if __name__ == "__main__":
    sys.exit(main())
