"""Build a self-contained HTML page: no scripts, readable offline, light and dark."""

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape

COLOURS = 8
# Distinguishable on light and dark backgrounds; a ninth series is dashed in the first colour.
LIGHT = ("#2a78d6", "#eb6834", "#1a9c75", "#b98300", "#d6568a", "#3f7d20", "#5b4bc4", "#c8393a")
DARK = ("#5b9bf0", "#f08a5d", "#35c196", "#dfae3a", "#ee86b0", "#82c05c", "#a79bf5", "#f27c7c")
LIGHT_GROUND = (
    "--ground: #fcfcfb; --panel: #ffffff; --ink: #1a1a19; --soft: #5a5a57; --faint: #e4e4e0; "
    "--bar: #dbe7f6; --bad: #b3261e;"
)
DARK_GROUND = (
    "--ground: #1a1a19; --panel: #232322; --ink: #f1f1ee; --soft: #b4b4ae; --faint: #3a3a37; "
    "--bar: #27405f; --bad: #ff8a80;"
)

STYLE = """
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem; max-width: 74rem; background: var(--ground);
 color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 0 .3rem } h2 { font-size: 1.1rem; margin: 2.2rem 0 .2rem }
p { margin: .2rem 0 .6rem; color: var(--soft); max-width: 56rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%;
 font-size: .86rem }
table.narrow { width: auto; min-width: min(22rem, 100%) }
th, td { padding: .25rem .4rem; text-align: right; white-space: nowrap;
 border-bottom: 1px solid var(--faint) }
th { font-weight: 600; color: var(--soft) } th.text, td.text { text-align: left }
td.text { white-space: normal } td strong { font-weight: 700 }
td.bar { background-image: linear-gradient(var(--bar), var(--bar)); background-repeat: no-repeat }
svg { display: block; width: 100%; min-width: 46rem; height: auto; margin: .3rem 0 1rem }
text { font: 12px system-ui, sans-serif; fill: var(--ink) }
text.tick { fill: var(--soft) } text.label { fill: var(--soft) }
text.name { fill: var(--c); font-weight: 600 }
text.name, text.over { paint-order: stroke; stroke: var(--ground); stroke-width: 4px }
line.grid { stroke: var(--faint) } line.axis { stroke: var(--soft) }
line.rule { stroke: var(--ink); stroke-dasharray: 5 4 }
.line path { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round }
.line.dashed path { stroke-dasharray: 6 3 }
.spot circle { fill: var(--c) } .spot path { stroke: var(--c); stroke-width: 1.5 }
circle.small { fill: none; stroke: var(--c); stroke-width: 1.2 }
.demand { --c: var(--ink) } .aside { --c: var(--soft) }
.demand path { stroke-width: 1.2 }
pre { font-size: .84rem; line-height: 1.35 }
.legend { position: sticky; top: 0; background: var(--ground); padding: .5rem 0; display: flex;
 flex-wrap: wrap; gap: .2rem 1.2rem; border-bottom: 1px solid var(--faint); z-index: 1 }
.legend label { cursor: pointer } .legend input { accent-color: var(--c) }
.swatch { display: inline-block; width: 1.4em; border-top: 3px solid var(--c);
 vertical-align: middle; margin-right: .4em } .swatch.dashed { border-top-style: dashed }
footer { margin-top: 2rem; color: var(--soft); font-size: .87rem }
"""


def page(title: str, lead: Iterable[str], body: Iterable[str], foot: str) -> str:
    """Return the whole page; the parts of ``body`` are markup, all else is escaped."""
    paragraphs = "".join(f"<p>{escape(each)}</p>" for each in lead)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head><body>"
        f"<h1>{escape(title)}</h1>{paragraphs}\n{chr(10).join(body)}\n"
        f"<footer>{escape(foot)}</footer></body></html>\n"
    )


def section(title: str, about: str, content: str) -> str:
    """Return a section: a heading, the sentence ``about``, and the markup ``content``."""
    note = f"<p>{escape(about)}</p>" if about else ""
    return f"<section><h2>{escape(title)}</h2>{note}{content}</section>"


def css(at: int) -> str:
    """Return the CSS classes of series number ``at``."""
    dashed = " dashed" if (at // COLOURS) % 2 else ""
    return f"s{at % COLOURS}{dashed} p{at}"


def legend(names: Sequence[str]) -> str:
    """Return the legend: a checkbox per series that shows or hides it in every chart."""
    ticks = "".join(
        f'<label class="{css(at)}"><input type="checkbox" id="p{at}" checked> '
        f'<span class="swatch{" dashed" if "dashed" in css(at) else ""}"></span>{escape(name)}'
        "</label>"
        for at, name in enumerate(names)
    )
    hidden = "".join(
        f"body:has(#p{at}:not(:checked)) :is(svg .p{at}) {{ display: none }}"
        for at in range(len(names))
    )
    return f'<style>{hidden}</style><nav class="legend" aria-label="Series">{ticks}</nav>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a table of cells made by ``text``, ``number`` or ``bar``; ``texts`` leading columns
    are flush left."""
    head = "".join(
        f"<th{' class=text' if at < texts else ''}>{escape(each)}</th>"
        for at, each in enumerate(heads)
    )
    lines = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    narrow = ' class="narrow"' if len(heads) < 4 else ""
    return f'<div class="wide"><table{narrow}><tr>{head}</tr>{lines}</table></div>'


def text(value: str) -> str:
    """Return a cell flush left."""
    return f'<td class="text">{escape(value)}</td>'


def number(value: str, *, strong: bool = False) -> str:
    """Return a cell flush right."""
    shown = f"<strong>{escape(value)}</strong>" if strong else escape(value)
    return f"<td>{shown}</td>"


def bar(value: str, part: float) -> str:
    """Return a number over a bar that fills ``part`` of its cell."""
    width = 100 * min(max(part, 0.0), 1.0)
    return f'<td class="bar" style="background-size: {width:.1f}% 100%">{escape(value)}</td>'


def palette() -> str:
    """Return the colours of reports and of the dashboard as CSS variables, light and dark.

    An attribute ``data-theme`` of the page, light or dark, has precedence over the system.
    """
    light = f"{LIGHT_GROUND} {_variables(LIGHT)}"
    dark = f"{DARK_GROUND} {_variables(DARK)}"
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        "@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) "
        f"{{ color-scheme: dark; {dark} }} }}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}\n"
    )


def _style() -> str:
    series = "".join(f".s{at} {{ --c: var(--c{at}) }}\n" for at in range(COLOURS))
    return palette() + STYLE + series


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--c{at}: {colour};" for at, colour in enumerate(colours))


def setting() -> str:
    """Return the page's footer: the time, the machine and its cores."""
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    cores = os.cpu_count() or 1
    return f"Written by headrace on {now}, {platform.machine()}, {cores} cores."
