"""Plotly figures of importance: a heatmap a token, bars a branch."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from .methods import METHODS
from .table import TRUTH, Importance

_TITLES = {
    TRUTH: "lost greedy agreement, branch dropped alone",
    "kl": "KL divergence after dropping the branch alone, nats",
    "logprob_drop": "log-probability lost after dropping the branch alone, nats",
    "attention_entropy": "attention: entropy, nats",
    "attention_first": "attention: weight on the first token",
    "attention_distance": "attention: tokens looked back",
}
_ATTENTION, _MLP = "#3b6fb6", "#d9822b"


def title_of(column: str) -> str:
    """What a column is, for a person."""
    return _TITLES.get(column) or (METHODS[column].label if column in METHODS else column)


def heatmap(importance: Importance, method: str, text: int = 0) -> go.Figure:
    """A row a branch (layer 0 at the bottom), a column a written token of one text.

    Raises:
        KeyError: the method wasn't run, or says nothing of that text's tokens.
    """
    frame = importance.per_token(method, text)
    values = frame.to_numpy()
    signed = bool(np.nanmin(values, initial=0.0) < 0)
    limit = float(np.nanquantile(np.abs(values), 0.99)) or 1.0  # one outlier would hide the rest
    words = importance.tokens[text]
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=list(range(frame.shape[1])),
            y=list(importance.branches),
            customdata=np.broadcast_to(
                np.array(words[: frame.shape[1]], dtype=object), values.shape
            ),
            colorscale="RdBu" if signed else "Viridis",
            reversescale=signed,
            zmin=-limit if signed else 0.0,
            zmax=limit,
            hovertemplate="%{y}, token %{x} “%{customdata}”: %{z:.4g}<extra></extra>",
        )
    )
    figure.update_layout(title=title_of(method))
    figure.update_xaxes(
        title="written token",
        tickvals=list(range(frame.shape[1])),
        ticktext=[_visible(word) for word in words[: frame.shape[1]]],
    )
    figure.update_yaxes(title="branch")
    return figure


def bars(importance: Importance, method: str) -> go.Figure:
    """A bar a branch, attention and MLP side by side, layer by layer.

    Raises:
        KeyError: the method wasn't run.
    """
    values = importance.columns[method].values
    layers = list(range(importance.n_layers))
    figure = go.Figure(
        [
            go.Bar(name="attention", x=layers, y=values[0::2], marker_color=_ATTENTION),
            go.Bar(name="MLP", x=layers, y=values[1::2], marker_color=_MLP),
        ]
    )
    found = importance.correlations.get(method)
    told = ""
    if found and found.spearman is not None and method != TRUTH:
        told = f"<br><sub>Spearman with the measured loss {found.spearman:.2f}"
        if found.interval:
            told += f" ({found.interval[0]:.2f} to {found.interval[1]:.2f})"
        told += "</sub>"
    figure.update_layout(title=title_of(method) + told, barmode="group")
    figure.update_xaxes(title="layer")
    return figure


def _visible(word: str) -> str:
    return word.replace("\n", "⏎").replace(" ", "·")
