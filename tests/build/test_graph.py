"""The picture of the graph: complete, without comments, and the one that is committed."""

import xml.etree.ElementTree as ElementTree

import pytest

from tests.build.checkouts import ROOT

DOT = "docs/build-graph.dot"
SVG = "docs/build-graph.svg"


def statements(text):
    return {line.strip() for line in text.splitlines() if "->" in line}


@pytest.fixture(scope="module")
def drawn(built_small):
    built_small.scons("graph")
    return built_small.path


def test_dot_holds_the_chain_from_source_to_target(drawn):
    edges = statements((drawn / DOT).read_text())
    assert {
        '"futhark/*.fut" -> "futhark/lowered/*";',
        '"futhark/lowered/*" -> "build/kernels_cpu.{c,h,json}";',
        '"build/obj/build/kernels_cpu.c.o" -> "build/libglm_cpu.so";',
        '"terra/**/*.t" -> "terra/lowered/*";',
        '"terra/lowered/*" -> "build/lowered/x86-64-v3/release.ll";',
        '"build/lowered/x86-64-v3/release.ll" -> "build/engine.o";',
        '"build/engine.o" -> "build/engine.so";',
        '"build/engine.so" -> "scons libraries";',
        '"scons libraries" -> "scons smoke";',
    } <= edges


def test_svg_is_well_formed_and_without_comments(drawn):
    text = (drawn / SVG).read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "<!--" not in text


def test_graph_does_not_lower(drawn):
    for folder in ("terra", "futhark"):
        assert '"none"' in (drawn / folder / "lowered/manifest.json").read_text()


def test_committed_graph_is_the_present_one(built_copy):
    built_copy.scons("graph")
    present, committed = (statements((root / DOT).read_text()) for root in (built_copy.path, ROOT))
    assert present == committed, "run `scons graph` and commit docs/build-graph.*"
