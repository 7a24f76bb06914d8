"""The code of the page on Python runs, block by block, and says what it should."""

import re

from tests.docs.documents import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def test_the_blocks_run_one_after_the_other(capsys):
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python") == 6
    names = {"__name__": "page"}
    printed = []
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
        printed.append(capsys.readouterr().out)
    assert printed[0] == " Paris. stop\n Lima. stop\n"
    assert printed[1].startswith("None None [('weather', {")
    assert names["messages"][-1]["tool_calls"]
    assert printed[2].startswith("{")
    assert printed[4]
    assert "RequestOutput(" in printed[5]
