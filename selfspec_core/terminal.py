"""Events as coloured text in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .events import Commit, Done, Event, Start, Verdict

# Okabe–Ito, as on the page: a colour and a mark each, so that neither is needed alone.
STYLES = {
    "draft": "underline #56B4E9",
    "rejected": "strike #D55E00",
    "correction": "bold underline #E69F00",
    "bonus": "underline #CC79A7",
    "plain": "",
}
LEGEND = (
    ("accepted draft", "draft"),
    ("✗rejected", "rejected"),
    ("correction", "correction"),
    ("bonus", "bonus"),
)


class Printer:
    """Prints a generation as it happens.

    Args:
        console: where to. On a terminal rejected drafts show, struck through, before their
            correction; anywhere else only the text itself is written.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, event: Event) -> None:
        """Print what an event adds."""
        rich = self._console.is_terminal
        if isinstance(event, Start) and rich:
            legend = Text("  ").join(Text(name, STYLES[style]) for name, style in LEGEND)
            self._console.print(legend, end="\n\n")
        elif isinstance(event, Verdict) and rich and event.status == "rejected":
            self._rejected = event
        elif isinstance(event, Commit):
            if rich and event.source == "correction":
                self._write(f"✗{self._rejected.text}", "rejected")
            if not event.special:
                self._write(event.text, event.source)
        elif isinstance(event, Done):
            self._console.print()
            if rich:
                self._console.print(figures(event), style="dim", highlight=False)

    def _write(self, text: str, style: str) -> None:
        self._console.print(Text(text, STYLES[style]), end="", soft_wrap=True, highlight=False)


def figures(done: Done) -> str:
    """The figures of a generation in one line."""
    parts = [f"{len(done.tokens)} tokens, ended by {done.reason}"]
    if done.tau is not None:
        parts.append(f"τ {done.tau:.2f} tokens a target pass")
    if done.alpha is not None:
        parts.append(f"α {done.alpha:.0%} of drafts accepted")
    if done.tokens_per_second is not None:
        parts.append(f"{done.tokens_per_second:.1f} tokens/s")
    parts.append(f"peak {done.peak_memory_mb:.0f} MB, weights {done.weights_mb:.0f} MB")
    return " · ".join(parts)
