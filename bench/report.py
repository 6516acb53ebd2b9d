"""A comparison as tables and as a page that opens without a network."""

from __future__ import annotations

import html
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from rich import box
from rich.table import Table

from selfspec_core.request import START

HEADINGS = ("system", "tok/s", "÷ plain", "95%", "τ", "α", "same", "equal", "MB")
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


def cells(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the table as text."""
    low, high = row["interval"]
    return (
        name,
        f"{row['tps']:.1f}",
        f"{row['ratio_to_plain']:.2f}",
        f"{low:.2f}–{high:.2f}",
        _number(row["tau"]),
        _number(row["alpha"]),
        f"{row['identical']}/{row['prompts']}",
        f"{row['equal_share']:.0%}",
        "–" if row["peak_mb"] is None else f"{row['peak_mb']:,.0f}",
    )


def tables(result: Mapping[str, Any]) -> list[Table]:
    """For a terminal: all prompts, then every breakdown."""
    made = [_rich("tokens per second, prompt included", result["systems"])]
    for by in _breakdowns(result):
        made += [_rich(title, rows) for title, rows in _parts(result, by).items()]
    return made


def markdown(result: Mapping[str, Any]) -> str:
    """The same as Markdown, with what it was measured on."""
    lines = [setting_line(result), "", *_markdown_table(result["systems"])]
    for by in _breakdowns(result):
        for title, rows in _parts(result, by).items():
            lines += ["", f"## {title}", "", *_markdown_table(rows)]
    lines += ["", *(f"- {note}" for note in result["notes"])]
    return "\n".join(lines).rstrip() + "\n"


def page(result: Mapping[str, Any]) -> str:
    """One HTML file with everything in it."""
    parts = [_bars(result["systems"], "speed against plain decoding")]
    parts += [_grouped(result, by) for by in _breakdowns(result)]
    divs = [
        figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
        for figure in parts
    ]
    head = "".join(f"<th>{html.escape(each)}</th>" for each in HEADINGS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells(name, row)) + "</tr>"
        for name, row in result["systems"].items()
    )
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in result["notes"])
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>bench compare</title>"
        "<meta name='viewport' content='width=device-width'>"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
        "padding:0 1rem}table{border-collapse:collapse;display:block;overflow-x:auto}"
        "td,th{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #ccc}"
        "td:first-child,th:first-child{text-align:left}</style>"
        f"<script>{get_plotlyjs()}</script><h1>Systems side by side</h1>"
        f"<p>{html.escape(setting_line(result))}</p>"
        f"<table><tr>{head}</tr>{body}</table><ul>{notes}</ul>{''.join(divs)}</html>"
    )


def write(folder: str | Path, result: Mapping[str, Any]) -> list[Path]:
    """Write compare.json, compare.md and compare.html into a folder, made if need be."""
    folder = make_folder(folder)
    texts = {
        "compare.json": json.dumps(result, allow_nan=False) + "\n",
        "compare.md": markdown(result),
        "compare.html": page(result),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def make_folder(name: str | Path) -> Path:
    """The folder of that name, made if need be.

    Raises:
        ValueError: there can't be one, or nothing can be written to it.
    """
    folder = Path(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"--out must be a folder that can be written to: {name}: {error.strerror}"
        ) from None
    return folder


def setting_line(result: Mapping[str, Any]) -> str:
    """What the figures were taken on, in a line."""
    quantised = f" (stored as {result['quantised']})" if result["quantised"] else ""
    return (
        f"{result['model']}{quantised}, {result['dtype']} on {result['hardware']} "
        f"({result['device']}, {result['threads']} threads); {result['execution']}. "
        f"Draft: {result['plan']}, k {result['k']}{_way(result)}; plain decoding with "
        f"{result['plain_rows']} "
        f"rows; greedy, {', '.join(map(str, result['lengths']))} tokens, "
        f"{result['repeats']} interleaved repeats; medians, 95% intervals over prompts."
    )


def _way(result: Mapping[str, Any]) -> str:
    """How it drafted and verified, where that isn't the usual way."""
    policy, start = result.get("policy", "fixed"), result.get("verify_from", START)
    said = "" if policy == "fixed" else f" at most (policy {policy})"
    return said if start == START else f"{said}, verified from the first skipped branch"


# -- parts -----------------------------------------------------------------------------------


def _breakdowns(result: Mapping[str, Any]) -> list[str]:
    first = next(iter(result["systems"].values()))
    return [name for name in ("by_category", "by_length") if name in first]


def _parts(result: Mapping[str, Any], by: str) -> dict[str, dict[str, Any]]:
    """Title → system → figures."""
    systems = result["systems"]
    unit = "{} tokens" if by == "by_length" else "{}"
    return {
        unit.format(key): {name: row[by][key] for name, row in systems.items()}
        for key in next(iter(systems.values()))[by]
    }


def _rich(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=title, box=box.SIMPLE, pad_edge=False)  # 80 columns are enough
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "system" else "right", no_wrap=True)
    for name, row in rows.items():
        table.add_row(*cells(name, row))
    return table


def _markdown_table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [HEADINGS, ["---", *["---:"] * (len(HEADINGS) - 1)]]
    lines += [cells(name, row) for name, row in rows.items()]
    return ["| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines]


def _bars(rows: Mapping[str, Mapping[str, Any]], title: str) -> go.Figure:
    names = list(rows)
    ratios = [rows[name]["ratio_to_plain"] for name in names]
    figure = go.Figure(
        go.Bar(
            x=names,
            y=ratios,
            marker_color=_COLOURS[0],
            text=[f"{rows[name]['tps']:.1f} tokens/s" for name in names],
            error_y={
                "type": "data",
                "array": [
                    max(rows[n]["interval"][1] - rows[n]["ratio_to_plain"], 0) for n in names
                ],
                "arrayminus": [
                    max(rows[n]["ratio_to_plain"] - rows[n]["interval"][0], 0) for n in names
                ],
            },
        )
    )
    return _dressed(figure, title)


def _grouped(result: Mapping[str, Any], by: str) -> go.Figure:
    systems = result["systems"]
    figure = go.Figure(
        [
            go.Bar(
                name=name,
                x=list(row[by]),
                y=[part["ratio_to_plain"] for part in row[by].values()],
                marker_color=_COLOURS[number % len(_COLOURS)],
            )
            for number, (name, row) in enumerate(systems.items())
        ]
    )
    figure.update_xaxes(type="category")
    return _dressed(figure, by.replace("_", " "))


def _dressed(figure: go.Figure, title: str) -> go.Figure:
    figure.add_hline(y=1, line_dash="dot", line_color="#666")
    figure.update_layout(title=title, yaxis_title="÷ plain decoding", template="plotly_white")
    return figure


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
