"""`glm generate`: text, options, bad input, interruption."""

import re
import signal
import subprocess

import pytest

from glm_engine.core.layout import CAPITALS
from glm_engine.text.tokenizer import GlmTokenizer
from tests.endless import NUM_TOKENS, OPTIONS, link_endless_model
from tests.linked import CONFIG, GENERATION, link_capitals, stating
from tests.python.commands.running import (
    CPU,
    ENVIRONMENT,
    GLM,
    QUESTION,
    ROOT,
    glm,
    glm_json,
    refused,
)
from tests.python.terminal.terminal import Terminal
from tests.scripted import ids_of, write_scripted_model

UNUSED_TOKEN = 2047


def test_generate_streams_what_json_reports():
    report = glm_json("generate", QUESTION, *CPU, "--max-tokens", 12)
    streamed = glm("generate", QUESTION, *CPU, "--max-tokens", 12, "--stats")
    assert streamed.stdout == report["completion"] + "\n"
    assert report["completion"].startswith(" Paris")
    assert report["finish_reason"] == "stop_token"
    assert f"{report['prompt_tokens']} prompt tokens at " in streamed.stderr


@pytest.mark.parametrize(("stated", "least", "most"), [("lookup:3", 2, 4), ("mtp", 1.6, 2)])
def test_draft_tokens_change_no_text_and_are_counted(stated, least, most):
    asked = (QUESTION, *CPU, "--max-tokens", 80, "--ignore-eos")
    plain = glm_json("generate", *asked)
    assert "draft_tokens" not in plain
    report = glm_json("generate", *asked, "--speculate", stated)
    assert report["token_ids"] == plain["token_ids"]
    accepted, drafted = report["accepted_draft_tokens"], report["draft_tokens"]
    assert 20 < accepted <= drafted
    assert least < report["mean_acceptance_length"] <= most
    streamed = glm("generate", *asked, "--speculate", stated, "--stats")
    assert streamed.stdout == plain["completion"] + "\n"
    assert f"; draft tokens: {accepted} of {drafted} accepted, mean" in streamed.stderr


@pytest.mark.parametrize("command", [("generate", "x"), ("serve", "--port", "0"), ("plan",)])
def test_a_model_without_the_prediction_layer_is_refused_in_one_line(command, tmp_path):
    model = link_capitals(tmp_path, {CONFIG: stating(num_nextn_predict_layers=0)})
    line = refused(*command, *CPU, "--model", model, "--speculate", "mtp")
    assert "--speculate is mtp, but " in line
    assert line.endswith("; use --speculate lookup:N\n")


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_generate_reads_standard_input(arguments):
    result = glm("generate", *arguments, *CPU, stdin=QUESTION + "\n")
    assert result.stdout.startswith(" Paris")


def test_a_terminal_gets_no_character_that_it_would_obey():
    escape = GlmTokenizer(CAPITALS).encode("\x1b")[-1]
    forced = [*CPU, "--max-tokens", 2, "--ignore-eos", "--logit-bias", f"{escape}=1000"]
    assert glm("generate", QUESTION, *forced).stdout == "\x1b\x1b\n"
    terminal = Terminal(QUESTION, *forced, program=(*GLM, "generate"))
    try:
        assert terminal.end() == 0
        assert terminal.raw.endswith(b"\\x1b\\x1b\r\n")
    finally:
        terminal.close()


def test_generate_chat():
    question = "What is the capital of France?"
    assert "Paris" in glm("generate", question, *CPU, "--chat").stdout


def test_a_stop_text_in_a_thought_does_not_end_a_chat(tmp_path):
    thought = ids_of("<think>", "Question: is it? Yes.", "</think>", "Paris", "<|user|>")
    model = write_scripted_model(tmp_path / "model", thought)
    template = model / "chat_template.jinja"
    thinks = template.read_text().replace("if enable_thinking", "if true")
    template.unlink()
    template.write_text(thinks)
    asked = ("x", *CPU, "--model", model, "--chat")
    stopped = glm_json("generate", *asked, "--stop", "Question:", "--stop", "ris")
    assert stopped["completion"] == "Question: is it? Yes.</think>Pa"
    assert stopped["finish_reason"] == "stop_text"


@pytest.mark.parametrize(("command", "is_chat"), [("generate", False), ("chat", True)])
def test_ends_that_generation_config_alone_names(command, is_chat, tmp_path):
    """A question of `chat` comes on standard input."""
    question = "What is the capital of France?" if is_chat else QUESTION
    place = ((), question) if is_chat else ((question,), None)
    whole = glm(command, *place[0], *CPU, stdin=place[1]).stdout
    last = GlmTokenizer(CAPITALS).encode(whole.rstrip())[-1]
    ends = {CONFIG: [UNUSED_TOKEN], GENERATION: [last]}
    changes = {name: stating(eos_token_id=end) for name, end in ends.items()}
    model = ("--model", link_capitals(tmp_path, changes))
    cut = glm(command, *place[0], *CPU, *model, stdin=place[1]).stdout
    assert cut.rstrip("\n") == whole.rstrip("\n").removesuffix(".")
    assert whole.rstrip("\n").endswith(".")


def test_generate_stops_before_a_text():
    report = glm_json("generate", QUESTION, *CPU, "--stop", "ris")
    assert report["completion"] == " Pa"
    assert report["finish_reason"] == "stop_text"


def test_generate_respects_lengths():
    report = glm_json("generate", QUESTION, *CPU, "--max-tokens", 5, "--ignore-eos")
    assert len(report["token_ids"]) == report["completion_tokens"] == 5
    assert report["finish_reason"] == "length"


def test_same_seed_same_text():
    sampled = ["generate", QUESTION, *CPU, "--temperature", "1.5", "--ignore-eos"]
    sampled += ["--max-tokens", "24", "--seed"]
    texts = [glm(*sampled, seed).stdout for seed in (1, 1, 2)]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]


def test_bias_and_logprobs_reach_the_engine():
    first = glm_json("generate", QUESTION, *CPU, "--max-tokens", 1, "--logprobs", 3)
    chosen = first["token_ids"][0]
    [row] = first["logprobs"]
    assert row["token_id"] == chosen
    assert row["top"][0]["token_id"] == chosen
    assert row["logprob"] == pytest.approx(row["top"][0]["logprob"])
    biased = glm_json(
        "generate", QUESTION, *CPU, "--max-tokens", 1, "--logit-bias", f"{chosen}=-100"
    )
    assert biased["token_ids"][0] != chosen


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "-1"], ["temperature"]),
        (["--temperature", "nan"], ["temperature"]),
        (["--top-p", "-0.1"], ["--top-p"]),
        (["--top-p", "nan"], ["--top-p"]),
        (["--top-k", "-1"], ["--top-k"]),
        (["--min-p", "2"], ["--min-p"]),
        (["--repetition-penalty", "0"], ["--repetition-penalty is 0"]),
        (["--max-tokens", "0"], ["--max-tokens"]),
        (["--max-tokens", "-5"], ["--max-tokens"]),
        (["--logit-bias", "999999=1"], ["999999"]),
        (["--logprobs", "21"], ["logprobs"]),
        (["--world-size", "3"], ["3"]),
    ],
)
def test_bad_options_are_named(arguments, words):
    line = refused("generate", QUESTION, *CPU, *arguments)
    assert all(word in line for word in words), line


def test_empty_standard_input():
    assert "prompt" in refused("generate", *CPU)


def test_prompt_too_long():
    assert "prompt" in refused("generate", QUESTION * 50, *CPU, "--max-seq", 64)


def test_pool_too_small_for_one_request():
    result = glm("generate", QUESTION * 4, *CPU, "--num-pages", 1)
    assert result.returncode in (2, 3)
    assert "page" in result.stderr


def test_interrupt_ends_a_generation_with_130(tmp_path):
    model = ("--model", link_endless_model(tmp_path), *OPTIONS)
    arguments = (*CPU, *model, "--ignore-eos", "--max-tokens", NUM_TOKENS)
    process = subprocess.Popen(
        [*GLM, "generate", QUESTION, *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "glm: interrupted"


def test_a_context_that_the_memory_cut_is_said_in_a_line():
    cut = glm("generate", QUESTION, *CPU, "--memory-limit", "30MB")
    assert "Paris" in cut.stdout
    line = r"glm: context length: ([\d,]+) tokens, limited by memory \(.* is 4,096\)\n"
    assert 512 <= int(re.fullmatch(line, cut.stderr)[1].replace(",", "")) < 4096
    assert glm("generate", QUESTION, *CPU).stderr == ""
