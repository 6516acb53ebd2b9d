"""`python -m bench COMMAND`: ratios measured side by side in one run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from selfspec_core.command_line import add_prompts, model_options, run

from . import compare_command, ideal, load, page, roofline, scale, streaming
from .drafts import add_draft_options, add_plan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark; returns its exit status. Wrong input is a sentence and status 2."""
    return run(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "compare", parents=[_common(draft=True)], help="systems side by side"
    )
    compare_command.add_options(command)
    command.set_defaults(run=compare_command.run)
    command = commands.add_parser(
        "roofline",
        parents=[_common(draft=False, limit=3)],
        help="plain decoding as a share of memory bandwidth",
    )
    command.add_argument(
        "--buffer-mb", type=int, default=roofline.BUFFER_MB, help="read for the bandwidth"
    )
    command.set_defaults(run=roofline.run)
    command = commands.add_parser(
        "ideal",
        parents=[_common(draft=True)],
        help="the measured speed-up against the possible one",
    )
    command.set_defaults(run=ideal.run)
    command = commands.add_parser(
        "scale",
        parents=[_common(draft=True, limit=2, tokens=48, repeats=2)],
        help="cost by context, k, skipped share and depth",
    )
    scale.add_options(command)
    command.set_defaults(run=scale.run)
    command = commands.add_parser(
        "streaming",
        parents=[_common(draft=False)],
        help="what the server costs, against the core alone",
    )
    add_plan(command)
    command.set_defaults(run=streaming.run)
    command = commands.add_parser(
        "load", parents=[_common(draft=False)], help="a room full of people at the real server"
    )
    load.add_options(command)
    command.set_defaults(run=load.run)
    command = commands.add_parser(
        "page", help="how soon a recorded run is seen, and the longest browser task of every act"
    )
    page.add_options(command)
    command.set_defaults(run=page.run)
    return parser


def _common(
    *, draft: bool, limit: int = 8, tokens: int = 64, repeats: int = 3
) -> argparse.ArgumentParser:
    """What every command takes, with its defaults.

    One for each: argparse has parsers share their parents' options, defaults included.
    """
    common = model_options()
    add_prompts(common, limit=limit)
    add = common.add_argument
    add("--max-new-tokens", type=int, default=tokens, help="of each text (default %(default)s)")
    add("--repeats", type=int, default=repeats, help="of each prompt (default %(default)s)")
    add("--chat", action=argparse.BooleanOptionalAction, default=None, help="use the chat format")
    if draft:
        add_draft_options(common)
    return common


if __name__ == "__main__":
    sys.exit(main())
