"""The command line: `python -m analysis importance|acceptance|cost|search|export|import`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from selfspec_core.command_line import add_prompts, add_seed, model_options, run

# `import` can't be a module's name.
COMMANDS = ("importance", "acceptance", "cost", "search", "export", "imports")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. Wrong input is a sentence and status 2."""
    return run(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Which layers can go: importance of branches, acceptance and cost of plans, "
        "a search for the plan and k that pay, and plans in and out of files.",
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        importlib.import_module(f"analysis.commands.{name}").add(subparsers, _common())
    return parser


def _common() -> argparse.ArgumentParser:
    """What every command takes; one for each, since parsers share a parent's defaults."""
    common = model_options()
    add_seed(common)
    add_prompts(common, limit=8)
    return common


if __name__ == "__main__":
    sys.exit(main())
