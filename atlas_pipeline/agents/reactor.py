"""The reactor: the agents on three rings as an SVG picture. The ring shown follows the family, not the ring column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

DISPLAY_RING = {"direction": 1, "cadrage": 2, "execution": 2, "validation": 3}
_COLOURS = {"direction": "#c2410c", "cadrage": "#1d4ed8", "execution": "#047857", "validation": "#7e22ce"}
_SIZE = 760
_RADII = {1: 95, 2: 210, 3: 320}
_LEAST, _MOST = 9.0, 22.0


def reactor_svg(agents: Sequence[Mapping[str, object]], activity: Mapping[str, int]) -> str:
    """A picture of agents (``codename``, ``nickname``, ``group_name``); the area of a dot grows with its ``activity``."""
    middle = _SIZE / 2
    shapes = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIZE} {_SIZE}" font-family="sans-serif" font-size="11" '
        f'role="img" aria-label="reactor">',
        f'<rect width="{_SIZE}" height="{_SIZE}" fill="#ffffff"/>',
    ]
    shapes += [
        f'<circle cx="{middle}" cy="{middle}" r="{radius}" fill="none" stroke="#d4d4d8" stroke-dasharray="3 5"/>'
        for radius in _RADII.values()
    ]
    most = max([*activity.values(), 1])
    for ring, radius in _RADII.items():
        there = [agent for agent in agents if DISPLAY_RING.get(str(agent["group_name"])) == ring]
        for number, agent in enumerate(sorted(there, key=lambda one: (str(one["group_name"]), str(one["codename"])))):
            angle = 2 * math.pi * number / len(there) - math.pi / 2
            x, y = middle + radius * math.cos(angle), middle + radius * math.sin(angle)
            share = math.sqrt(activity.get(str(agent["codename"]), 0) / most)
            size = _LEAST + (_MOST - _LEAST) * share
            colour = _COLOURS[str(agent["group_name"])]
            name = escape(str(agent["nickname"]))
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{colour}" fill-opacity="0.85"/>')
            shapes.append(
                f'<text x="{x:.1f}" y="{y + size + 12:.1f}" text-anchor="middle" fill="#27272a">{name}</text>'
            )
    for place, (family, colour) in enumerate(_COLOURS.items()):
        y = 20 + 18 * place
        shapes.append(f'<circle cx="18" cy="{y}" r="6" fill="{colour}"/>')
        shapes.append(f'<text x="32" y="{y + 4}" fill="#27272a">{family} (ring {DISPLAY_RING[family]})</text>')
    return "\n".join([*shapes, "</svg>"])
