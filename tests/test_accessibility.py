"""Readable by all: headings in order, pictures in words, colours that differ for every eye and never speak alone."""

import ast
import importlib
import inspect
import itertools
import pkgutil
import re

import course
import gallery
import matplotlib.collections
import matplotlib.patches
import nbformat
import numpy as np
import pytest
from colorspacious import cspace_convert, deltaE
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like, to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from recompute_lab import views
from recompute_lab.views import style

VIEWS = course.HOUSE / "src" / "recompute_lab" / "views"
figures = pytest.mark.parametrize("name", gallery.FIGURES)


# --- Headings and pictures in notebooks


def wrong_outline(text: str) -> str | None:
    """What is wrong with the order of headings, or None: one of level 1, first; none skips a level."""
    levels = [heading.level for heading in course.headings(text)]
    if levels.count(1) != 1 or levels[0] != 1:
        return f"{levels.count(1)} headings of level 1"
    for above, below in itertools.pairwise(levels):
        if below > above + 1:
            return f"a heading of level {below} below one of level {above}"
    return None


@pytest.mark.parametrize("text", map(course.whole, course.LESSONS), ids=[s.stem for s in course.LESSONS])
def test_a_lessons_headings_are_in_order(text):
    assert wrong_outline(text) is None


@pytest.mark.parametrize("path", course.TEXTS, ids=lambda path: path.name)
def test_a_texts_headings_are_in_order(path):
    assert wrong_outline(course.text_of(path)) is None


def test_headings_out_of_order_are_noticed():
    assert wrong_outline("# a\n## b\n### c\n## d") is None
    assert "level 3 below one of level 1" in wrong_outline("# a\n### b")
    assert "2 headings" in wrong_outline("# a\n# b")
    assert wrong_outline("# a\n\n```\n#### no heading\n```\n") is None


STORED = [
    path for folder in (course.NOTEBOOKS, course.NOTEBOOKS / "solutions") for path in sorted(folder.glob("*.ipynb"))
]


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_picture_has_its_sentence_and_the_same_as_its_alternative(path):
    """As `views.style.show` does it: the alt text is what is printed, whatever the width of the lines."""
    for place, cell in enumerate(nbformat.read(path, as_version=4).cells, 1):
        printed = " ".join("".join(o.get("text", "") for o in cell.get("outputs", [])).split())
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if any(mime.startswith("image/") for mime in data):
                said = output.get("metadata", {}).get("image/png", {}).get("alt", "")
                assert len(said.split()) >= 3, f"cell {place}: a picture without a sentence"
                assert " ".join(said.split()) in printed, f"cell {place}: its alt text is not what is printed"
            assert "<img" not in str(data.get("text/html", "")), f"cell {place}: a picture in HTML"


@pytest.mark.parametrize("path", [*course.TEXTS, *course.LESSONS], ids=lambda path: path.name)
def test_pictures_in_markdown_have_an_alternative(path):
    text = course.whole(path) if path.suffix == ".py" else course.text_of(path)
    for bang, alternative, target in (match.groups() for match in course.LINK.finditer(course.plain(text))):
        assert not bang or len(alternative.split()) >= 3, target
    for tag in re.findall(r"<img[^>]*>", text):
        assert re.search(r'alt="\S+ \S+ \S+', tag), tag


# --- Colours


def luminance(colour) -> float:
    """Relative luminance, 0 to 1. Source: W3C, Web Content Accessibility Guidelines 2.2, its definition."""
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgba(colour)[:3]]
    return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), channels, strict=True))


def contrast(a, b="white") -> float:
    """The contrast ratio, 1 to 21. Source: as above; success criteria 1.4.3 (text: 4.5) and 1.4.11 (marks: 3)."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


# Kinds of colour vision, as G. M. Machado, M. M. Oliveira and L. A. F. Fernandes simulate them, "A Physiologically-
# based Model for Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009: at severity 100 a kind of cones lacks.
EYES = {None: "sRGB1"} | {
    kind: {"name": "sRGB1+CVD", "cvd_type": kind, "severity": 100}
    for kind in ("deuteranomaly", "protanomaly", "tritanomaly")
}
# The distance in CAM02-UCS that two colours must keep. At about 1 one sees a difference between large fields side by
# side; for small marks that lie apart one asks for ten times as much.
APART = 12.0


def distance(a, b, eye: str | None) -> float:
    """Between two colours as this eye sees them, in CAM02-UCS."""
    seen = [np.clip(cspace_convert(to_rgba(c)[:3], EYES[eye], "sRGB1"), 0, 1) for c in (a, b)]
    return float(deltaE(*seen, input_space="sRGB1"))


def is_grey(colour) -> bool:
    return np.ptp(to_rgba(colour)[:3]) < 0.02


def test_contrast_and_distance_are_right_at_known_places():
    assert contrast("black") == pytest.approx(21) and contrast("white") == 1
    assert contrast("#767676") == pytest.approx(4.54, abs=0.01)  # the lightest grey that text may have
    assert distance("#ff0000", "#ff0000", None) == 0
    # Red and green of one lightness: far apart, but not for who lacks the red or the green cones.
    assert distance("#c04040", "#3f7f00", None) > 40 > 20 > distance("#c04040", "#3f7f00", "deuteranomaly")


def views_functions() -> set[str]:
    """All figure functions of the views, as module.name."""
    found = set()
    for module in pkgutil.iter_modules(views.__path__):
        loaded = importlib.import_module(f"recompute_lab.views.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            own = inspect.unwrap(function).__module__ == loaded.__name__ and not name.startswith("_")
            if own and inspect.signature(function).return_annotation in (Figure, "Figure"):
                found.add(f"{module.name}.{name}")
    return found


def test_the_gallery_has_every_figure():
    missing = views_functions() - set(gallery.FIGURES)
    assert not missing, f"no example in tests/gallery.py, so no test of its colours: {', '.join(sorted(missing))}"


PALETTE = {
    to_hex(value) for value in vars(style).values() if isinstance(value, str) and re.match("#[0-9a-fA-F]{6}$", value)
}
NAMED = re.compile(r"#[0-9a-fA-F]{3,8}\b")


def literal_colours(path) -> list[str]:
    """Colours that a module spells out, but for black and white: as a number, or by a name of matplotlib's."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.fullmatch(node.value):
            found.append(node.value)
        for name, value in keywords(node):
            plain = isinstance(value, ast.Constant) and isinstance(value.value, str)
            if plain and COLOURED.search(name) and is_color_like(value.value) and value.value not in ("white", "none"):
                found.append(value.value)
    return found


COLOURED = re.compile(r"color|^(c|fc|ec|mfc|mec)$")


def keywords(node) -> list[tuple[str, ast.expr]]:
    """The keywords of a call, and the keys of a dict."""
    if isinstance(node, ast.Call):
        return [(k.arg, k.value) for k in node.keywords if k.arg]
    if isinstance(node, ast.Dict):
        return [
            (k.value, v)
            for k, v in zip(node.keys, node.values, strict=True)
            if isinstance(k, ast.Constant) and isinstance(k.value, str)
        ]
    return []


@pytest.mark.parametrize("path", sorted(VIEWS.glob("*.py")), ids=lambda path: path.stem)
def test_colours_come_from_the_style(path):
    if path.stem != "style":
        assert not literal_colours(path), "colours have names, and stand in views/style.py"


def test_lessons_and_cells_bring_no_colours_of_their_own():
    package = [
        p for part in ("lessons", "instruments", "specimens", "repairs") for p in (VIEWS.parent / part).rglob("*.py")
    ]
    assert not {path.name: found for path in package if (found := literal_colours(path))}
    for source in course.LESSONS:
        code = "\n".join(cell.source for cell in course.cells(source) if cell.cell_type == "code")
        assert not NAMED.findall(code)


# --- Figures, walked


def opaque(colour) -> bool:
    return to_rgba(colour)[3] > 0.3


def texts_of(made: Figure) -> list[Text]:
    return [t for t in made.findobj(Text) if t.get_visible() and t.get_text().strip()]


@figures
def test_text_has_the_contrast_of_body_text(name):
    for text in texts_of(gallery.figure(name)):
        assert contrast(text.get_color()) >= 4.5, f"'{text.get_text()}' in {text.get_color()}"


def helper(line: Line2D) -> bool:
    """A line of the axes' furniture: a guide in pale grey, or one that runs across all of the axes."""
    across = len(line.get_xdata()) == 2 and line.get_transform() != line.axes.transData
    return to_hex(line.get_color()) == to_hex(style.PALE) or (across and line.get_marker() in ("", "None", None))


def data_lines(axes: Axes) -> list[Line2D]:
    """Lines and marks that say something of the data."""
    return [line for line in axes.lines if line.get_visible() and not helper(line) and (line.get_alpha() or 1) > 0.3]


def shown_colours(line: Line2D) -> list[str]:
    """The colours in which a line, and the outline or the face of its marks, appear."""
    found = [line.get_color()] if line.get_linestyle() not in ("None", "none", "", " ") else []
    if line.get_marker() not in ("", "None", None):
        edge, face = line.get_markeredgecolor(), line.get_markerfacecolor()
        found.append(face if contrast(face) > contrast(edge) else edge)
    return [to_hex(colour) for colour in found]


@figures
def test_lines_and_marks_stand_out_from_the_paper(name):
    for axes in gallery.figure(name).axes:
        for line in data_lines(axes):
            for colour in shown_colours(line):
                assert contrast(colour) >= 3, f"{line.get_label()} in {colour}"


def furniture(patch) -> bool:
    """Without a face and an edge; or a shade behind the data."""
    faint = not opaque(patch.get_facecolor()) or (patch.get_alpha() or 1) <= 0.45
    return faint and not (opaque(patch.get_edgecolor()) and patch.get_linewidth() > 0 and patch.get_hatch())


def data_patches(axes: Axes) -> list[matplotlib.patches.Patch]:
    return [p for p in axes.patches if p.get_visible() and not furniture(p) and p is not axes.patch]


@figures
def test_areas_stand_out_by_their_face_or_their_edge_or_are_blank(name):
    for axes in gallery.figure(name).axes:
        for patch in data_patches(axes):
            face, edge = patch.get_facecolor(), patch.get_edgecolor()
            if contrast(face) < 1.02:
                continue  # white: it is blank, and what is to be known stands in it, or on its edge
            outlined = patch.get_linewidth() > 0 and opaque(edge) and contrast(edge) >= 3
            assert contrast(face) >= 3 or outlined, f"{to_hex(face)} with an edge of {to_hex(edge)}"


def colours_of(axes: Axes) -> set[str]:
    """All colours that speak in one system of axes: not white, nor pale grey where it is a guide or an edge."""
    found = {colour for line in data_lines(axes) for colour in shown_colours(line)}
    for patch in data_patches(axes):
        edge = {to_hex(patch.get_edgecolor())} if opaque(patch.get_edgecolor()) else set()
        found |= {to_hex(patch.get_facecolor())} | edge - {to_hex(style.PALE)}
    for text in axes.findobj(Text):
        if text.get_text().strip() and text.get_visible():
            found.add(to_hex(text.get_color()))
    return {colour for colour in found if contrast(colour) > 1.02}


@figures
def test_colours_that_meet_differ_for_every_eye(name):
    for axes in gallery.figure(name).axes:
        for a, b in itertools.combinations(sorted(colours_of(axes)), 2):
            near = {eye or "all": round(d, 1) for eye in EYES if (d := distance(a, b, eye)) < APART}
            assert not near, f"{a} and {b}: {near}"


@figures
def test_every_colour_is_of_the_palette(name):
    made = gallery.figure(name)
    for axes in made.axes:
        assert colours_of(axes) <= PALETTE | {"#000000"}, colours_of(axes) - PALETTE


def way(line: Line2D) -> tuple:
    """How a line looks but for its colour."""
    mark = line.get_marker() if line.get_marker() not in ("", "None", None) else ""
    hollow = bool(mark) and contrast(line.get_markerfacecolor()) < 1.02
    dashes = "none" if line.get_linestyle() in ("None", "none", "", " ") else str(line._unscaled_dash_pattern)
    return mark, hollow, dashes


def has_label_of_its_own(line: Line2D, axes: Axes) -> bool:
    """A text stands within a tenth of the axes' size of one of the line's ends, or an arrow leads to it."""
    inside = axes.transAxes.inverted()
    points = inside.transform(line.get_transform().transform(np.column_stack(line.get_data(orig=False)).astype(float)))
    ends = points[[0, -1, len(points) // 2]]
    for text in axes.texts:
        if not text.get_text().strip():
            continue
        box = inside.transform(text.get_window_extent())
        low, high = box.min(0), box.max(0)
        gaps = np.maximum(0, np.maximum(low - ends, ends - high))
        if (np.hypot(*gaps.T) < 0.12).any() or (getattr(text, "arrow_patch", None) is not None):
            return True
    return False


@figures
def test_lines_of_different_colours_differ_in_something_else(name):
    made = gallery.figure(name)
    made.draw_without_rendering()
    for axes in made.axes:
        for a, b in itertools.combinations(data_lines(axes), 2):
            if set(shown_colours(a)) == set(shown_colours(b)) or way(a) != way(b):
                continue
            if connector(a) or connector(b):
                continue
            assert has_label_of_its_own(a, axes) and has_label_of_its_own(b, axes), (
                f"{a.get_label()} and {b.get_label()} differ in their colour only: {way(a)}"
            )


def connector(line: Line2D) -> bool:
    """The bar of an interval: its mark, which stands on it, tells whose it is."""
    return line.get_marker() in ("", "None", None) and len(line.get_xdata()) == 2


@figures
def test_areas_of_different_colours_differ_in_something_else(name):
    """By a hatch, the line of their edge, the words in them; or by so much lightness that it shows in grey."""
    made = gallery.figure(name)
    made.draw_without_rendering()
    for axes in made.axes:
        words = [(t.get_text(), t.get_window_extent()) for t in axes.texts if t.get_text().strip()]

        def said(patch, words=words):
            box = patch.get_window_extent()
            return tuple(w for w, extent in words if extent.overlaps(box))

        kinds = {}
        for patch in data_patches(axes):
            kind = to_hex(patch.get_facecolor()), patch.get_hatch(), patch.get_linestyle()
            kinds.setdefault(kind, []).append(patch)
        for (a, some), (b, others) in itertools.combinations(kinds.items(), 2):
            if a[0] == b[0] or a[1:] != b[1:]:
                continue
            light = [cspace_convert(to_rgba(kind[0])[:3], "sRGB1", "CAM02-UCS")[0] for kind in (a, b)]
            worded = all(said(patch) for patch in (*some, *others))
            assert abs(light[0] - light[1]) >= 20 or worded, f"{a} and {b}"
