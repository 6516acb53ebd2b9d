"""What the command lines of core, analysis and bench share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .execution import MODES

EXAMPLE_PROMPTS = Path(__file__).resolve().parent.parent / "assets" / "prompts.jsonl"
"""The project's own prompts."""


def model_options() -> argparse.ArgumentParser:
    """A parent parser with what every command takes: the model, and how to print."""
    parser = argparse.ArgumentParser(add_help=False)
    add = parser.add_argument
    add("--model", default="builtin", help="builtin, hub id, folder or GGUF file")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--dtype", default="auto", help="auto, bfloat16, float16 or float32")
    add("--mode", default="auto", choices=MODES, help="how forwards are executed (default auto)")
    add("--json", action="store_true", help="machine-readable output")
    return parser


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add `--seed`, for commands that draw anything."""
    parser.add_argument("--seed", type=int, default=0, help="any whole number (default 0)")


def add_prompts(parser: argparse.ArgumentParser, *, limit: int) -> None:
    """Add `--prompts` and `--limit`."""
    parser.add_argument(
        "--prompts",
        default=str(EXAMPLE_PROMPTS),
        metavar="FILE.jsonl",
        help='one {"prompt": …} or {"turns": […]} a line (default: the examples of the project)',
    )
    parser.add_argument(
        "--limit", type=int, default=limit, help="how many prompts (default %(default)s)"
    )


def run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Run the chosen command; returns its exit status. Wrong input is a sentence and status 2."""
    options = parser.parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:  # what a person can mend; anything else is a bug
        print(f"error: {error}", file=sys.stderr)
        return 2
