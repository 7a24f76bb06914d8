"""The source rules: each language both ways, and the command."""

import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tools.check import rules
from tools.check.files import BINARY, check_file
from tools.check.languages import LANGUAGES, language_of
from tools.check.settings import Exemption, load_settings

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Case:
    """A source of cases/*.case, and the rules that it breaks: one row for each finding."""

    kind: str
    name: str
    text: str = ""
    findings: list[tuple[int, str]] = field(default_factory=list)


def read_cases():
    """Every case: a line `KIND NAME`, then source lines, each after its findings and a bar."""
    cases = []
    for path in sorted((Path(__file__).parent / "cases").glob("*.case")):
        for row in path.read_text().splitlines():
            findings, bar, line = row.partition("|")
            if not bar:
                cases.append(Case(*row.split()))
                continue
            cases[-1].text += line[1:] + "\n"
            number = cases[-1].text.count("\n")
            cases[-1].findings += [(number, rule) for rule in findings.strip().split(", ") if rule]
    return cases


CASES = read_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind} {case.name}")
def test_findings_of_a_source(case):
    _, violations = check_file(case.name, case.text.encode(), load_settings())
    assert sorted((one.line, one.rule) for one in set(violations)) == case.findings
    assert bool(case.findings) == (case.kind == "rejects")


@pytest.mark.parametrize("kind", ["accepts", "rejects"])
def test_every_language_has_a_case(kind):
    covered = {language_of(case.name, "").name for case in CASES if case.kind == kind}
    assert covered == {one.name for one in LANGUAGES}


@pytest.mark.parametrize(
    ("name", "first_line", "language"),
    [
        ("SConstruct", "", "Python"),
        ("terra/SConscript", "", "Python"),
        ("tools/develop", "#!/bin/sh", "shell"),
        ("tools/run", "#!/usr/bin/env -S python3.11 -u", "Python"),
        ("tools/run", "#!/usr/bin/env terra", "Terra and Lua"),
        (".clang-format", "", "YAML"),
    ],
)
def test_language_by_name_or_shebang(name, first_line, language):
    assert language_of(name, first_line + "\n").name == language


def test_unknown_kind_is_an_error():
    _, violations = check_file("source.unheard", b"text\n", load_settings())
    assert [one.rule for one in violations] == ["unknown kind of file"]


def test_unreadable_source_is_an_error():
    for name, content in [("a.py", b"def ("), ("a.c", b"/* open"), ("a.py", b"\xff")]:
        _, violations = check_file(name, content, load_settings())
        assert [one.line for one in violations] == [1], name


def test_binary_data_is_counted():
    assert check_file("a.safetensors", b"\0\1", load_settings()) == (BINARY, [])


@pytest.mark.parametrize("folder", rules.MACHINE_FOLDERS)
@pytest.mark.parametrize("name", ["a.md", "a.py", "a.ll", "checkpoints/a.json"])
def test_machine_paths_are_found_in_every_kind(folder, name):
    content = f'"/{folder}/main"\n'.encode()
    _, violations = check_file(name, content, load_settings())
    assert [one.rule for one in violations] == ["machine path"]


@pytest.mark.parametrize("host", rules.REGISTRY_HOSTS)
def test_registry_hosts_are_found(host):
    content = f"https://{'.'.join(host)}/simple\n".encode()
    _, violations = check_file("a.md", content, load_settings())
    assert [one.rule for one in violations] == ["machine path"]


@pytest.mark.parametrize("text", ["a/work/b", "$HOME/work/b", "/workers", "</root>"])
def test_other_paths_are_not(text):
    assert list(rules.machine_paths("a.md", text)) == []


@pytest.mark.parametrize("word", sorted(load_settings().banned_words))
def test_words_in_every_spelling(word):
    spellings = [word, word.upper(), word.title(), f"a_{word}_b", f"a{word.title()}B"]
    for spelling in spellings:
        assert banned(f'x = "{spelling} 1"\n'), spelling
        assert banned(f"{spelling} = 1\n"), spelling
        assert not banned(f"un{word}ed = 1\n")


def banned(text):
    _, violations = check_file("a.py", text.encode(), load_settings())
    return bool(violations)


def test_word_in_a_file_name():
    word = sorted(load_settings().banned_words)[0]
    _, violations = check_file(f"a/{word}_b.py", b"x = 1\n", load_settings())
    assert [one.rule for one in violations] == ["banned word"]


def test_exemption_allows_one_text_in_one_place():
    word = sorted(load_settings().banned_words)[0]
    exemption = Exemption("a.py", "banned word", word, "a foreign name")
    settings = replace(load_settings(), exemptions=(exemption,))
    assert check_file("a.py", f"{word} = 1\n".encode(), settings)[1] == []
    assert check_file("b.py", f"{word} = 1\n".encode(), settings)[1] != []


@pytest.mark.parametrize("command", [["tools/check"], ["-m", "tools.check"]])
def test_command_says_what_it_read_and_fails(command, tmp_path):
    (tmp_path / "a.py").write_text("x = 1  # note\n")
    result = subprocess.run(
        [sys.executable, *command, "--root", str(tmp_path), "--list"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "a.py:1:8: comment: '# note'" in result.stdout
    assert "1  files, 1 violations" in result.stdout
