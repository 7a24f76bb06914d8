"""`scons graph`: the dependency graph as DOT and SVG, read from SCons's own tree."""

import re
from pathlib import PurePosixPath

from environment import root_folder
from SCons.Action import Action

DOT_FILE = "docs/build-graph.dot"
SVG_FILE = "docs/build-graph.svg"
LEFT_OUT = ("build/missing/", ".toolchain/")
STYLES = {
    "target": {"shape": "box", "style": "rounded,filled", "fillcolor": "#fde68a"},
    "output": {"shape": "box", "style": "filled", "fillcolor": "#bfdbfe"},
    "source": {"shape": "box", "style": "filled", "fillcolor": "#ffffff"},
    "tool": {"shape": "ellipse", "style": "filled", "fillcolor": "#e5e7eb"},
}
MANY = (
    (re.compile(r"^build/(kernels_\w+)\.(c|h|json)$"), r"build/\1.{c,h,json}"),
    (re.compile(r"^build/import/.*$"), "build/import/*"),
    (re.compile(r"^build/fuzz/[^./]+$"), "build/fuzz/*"),
    (re.compile(r"^build/obj/(?:cuda/)?native/kernels/.*$"), "build/obj/native/kernels/**/*.o"),
    (re.compile(r"^native/kernels/.*\.(\w+)$"), r"native/kernels/**/*.\1"),
    (re.compile(r"^(terra|futhark)/lowered/.*$"), r"\1/lowered/*"),
    (re.compile(r"^terra/.*\.t$"), "terra/**/*.t"),
    (re.compile(r"^(build/obj/(?:native|tests)/.*)/[^/]+$"), r"\1/*.o"),
    (re.compile(r"^(?!build/)(.*)/[^/]+(\.\w+)$"), r"\1/*\2"),
)
COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
DOCTYPE = re.compile(r"<!DOCTYPE.*?>\n?", re.S)


def kind(node):
    """Which of the styles a node of SCons's tree has; None for what the picture leaves out."""
    name = type(node).__name__
    if name == "Alias":
        return "target"
    if name == "Value":
        return "tool"
    if PurePosixPath(str(node)).is_absolute() or str(node).startswith(LEFT_OUT):
        return None
    return "output" if node.has_builder() else "source"


def label(node, style):
    """What stands for a node in the picture: files of one folder and one suffix are one box."""
    text = str(node)
    if style == "tool":
        name, colon, _ = text.partition(": ")
        return name if colon else None
    if style == "target":
        return f"scons {text}"
    for pattern, group in MANY:
        if pattern.match(text):
            return pattern.sub(group, text)
    return text


def edges_below(roots):
    """All labelled edges (from, to) reachable from the roots, and the style of each label."""
    edges, styles, seen, waiting = set(), {}, set(), list(roots)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        upper = visible(node, styles)
        for child in node.children():
            lower = visible(child, styles)
            if upper and lower and upper != lower:
                edges.add((lower, upper))
            if kind(child):
                waiting.append(child)
    return edges, styles


def visible(node, styles):
    """The label of a node, recorded with its style, or None."""
    style = kind(node)
    text = label(node, style) if style else None
    if text:
        styles[text] = style
    return text


def dot_text(edges, styles):
    """The graph in DOT, sorted, one statement a line."""
    lines = [
        "digraph build {",
        '  graph [rankdir="LR", ranksep="0.8", nodesep="0.15", bgcolor="#ffffff"];',
        '  node [fontname="Helvetica", fontsize="11", height="0.3"];',
        '  edge [color="#6b7280", arrowsize="0.6"];',
    ]
    for name, style in sorted(styles.items()):
        attributes = ", ".join(f'{key}="{value}"' for key, value in STYLES[style].items())
        lines.append(f'  "{name}" [{attributes}];')
    lines += [f'  "{lower}" -> "{upper}";' for lower, upper in sorted(edges)]
    return "\n".join([*lines, "}", ""])


def svg_text(dot):
    """The picture of a DOT text, laid out by the graphviz inside pygraphviz's wheel."""
    import pygraphviz

    picture = pygraphviz.AGraph(string=dot).draw(format="svg", prog="dot").decode()
    return DOCTYPE.sub("", COMMENT.sub("", picture))


def draw(target, source, env):
    """Writes docs/build-graph.dot and docs/build-graph.svg."""
    root = root_folder(env)
    roots = [env.Alias(name)[0] for name in sorted(env["GLM_TARGETS"])]
    dot = dot_text(*edges_below(node for node in roots if node.children()))
    (root / "docs").mkdir(exist_ok=True)
    (root / DOT_FILE).write_text(dot)
    (root / SVG_FILE).write_text(svg_text(dot))
    print(f"wrote {DOT_FILE} and {SVG_FILE}")
    return 0


def exists(env):
    """DOT needs nothing; SVG needs pygraphviz, which the development shells have."""
    return True


def generate(env):
    """Adds GraphTarget."""
    env.AddMethod(
        lambda env: env.CommandTarget(
            "graph",
            f"writes the dependency graph to {DOT_FILE} and {SVG_FILE}",
            Action(draw, "draw the dependency graph"),
        ),
        "GraphTarget",
    )
