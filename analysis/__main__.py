"""The command line: `python -m analysis importance|acceptance|cost|search|export|import`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

EXAMPLE_PROMPTS = Path(__file__).resolve().parent.parent / "assets" / "prompts.jsonl"
# `import` can't be a module's name.
COMMANDS = ("importance", "acceptance", "cost", "search", "export", "imports")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. Wrong input is a sentence and status 2."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:  # what a person can mend; anything else is a bug
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    add = common.add_argument
    add("--model", default="builtin", help="builtin, hub id, folder or GGUF file")
    add("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    add("--dtype", default="auto", help="auto, bfloat16, float16 or float32")
    add("--seed", type=int, default=0, help="any whole number (default 0)")
    add("--json", action="store_true", help="machine-readable output")
    add(
        "--prompts",
        default=str(EXAMPLE_PROMPTS),
        metavar="FILE.jsonl",
        help='one {"prompt": …} or {"turns": […]} a line (default: the examples of the project)',
    )
    add("--limit", type=int, default=8, help="how many prompts (default 8)")
    parser = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Which layers can go: importance of branches, acceptance and cost of plans, "
        "a search for the plan and k that pay, and plans in and out of files.",
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"analysis.commands.{name}").add(subparsers, common)
    return parser


if __name__ == "__main__":
    sys.exit(main())
