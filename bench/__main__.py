"""`python -m bench compare|streaming`: ratios measured side by side in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from selfspec_core.command_line import add_prompts, model_options, run

from . import compare, streaming
from .systems import SYSTEMS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark; returns its exit status. Wrong input is a sentence and status 2."""
    return run(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    common = model_options()
    add_prompts(common, limit=8)
    add = common.add_argument
    add("--max-new-tokens", type=int, default=64, help="length of each text (default 64)")
    add("--skip", default="a3-8", metavar="PLAN", help="what the draft skips (default a3-8)")
    add("--k", type=int, help="drafts a round; default 2 on a CPU, 4 on a GPU")
    add("--repeats", type=int, default=3, help="how often each prompt is written (default 3)")
    add("--chat", action=argparse.BooleanOptionalAction, default=None, help="use the chat format")

    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("compare", parents=[common], help="systems side by side")
    command.add_argument(
        "--systems", default="plain,selfspec,hf-generate", help=f"of {', '.join(SYSTEMS)}"
    )
    command.set_defaults(run=compare.run)
    command = commands.add_parser(
        "streaming", parents=[common], help="what the server costs, against the core alone"
    )
    command.set_defaults(run=streaming.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
