"""The 20 most used options or commands of each of four engines: taken, or answered.

The names are those of the documentation of `vllm serve`, SGLang's server arguments, llama-server's
README, and Ollama's command line and `ollama serve --help`, read in November 2026.
"""

import os
import re

import click
import pytest

from glm_engine.cli import command_line, options, peer_commands, peer_options
from glm_engine.cli.aliases import Foreign
from glm_engine.cli.option_types import FreeShare
from glm_engine.cli.peer_values import ShareOfAll
from glm_engine.cli.unknown_variables import warn_of_foreign_variables
from glm_engine.core.acceptance import Speculation
from glm_engine.core.layout import CAPITALS
from tests.python.cli.test_option_sources import COMMANDS, ROOT_CONTEXT

HERE = str(CAPITALS)
SHARE = object()
NOTHING = object()
NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
SERVE = {
    "vllm serve": [
        (("--model", HERE), "model_dir", HERE),
        (("--host", "0.0.0.0"), "host", "0.0.0.0"),
        (("--port", "9000"), "port", 9000),
        (("--tensor-parallel-size", "4"), "world_size", 4),
        (("--max-model-len", "32k"), "max_seq", 32_000),
        (("--gpu-memory-utilization", "0.9"), "memory_limit", SHARE),
        (("--max-num-seqs", "64"), "max_batch", 64),
        (("--max-num-batched-tokens", "4096"), "max_step_tokens", 4096),
        (("--dtype", "bfloat16"), NOTHING, None),
        (("--quantization", "awq"), "glm loads BF16 and FP8 weights", None),
        (("--served-model-name", "air"), "served_names", ("air",)),
        (("--trust-remote-code",), NOTHING, None),
        (("--api-key", "secret"), "api_keys", ("secret",)),
        (("--enable-prefix-caching",), "prefix_cache", True),
        (("--kv-cache-dtype", "fp8"), "kv_dtype", "fp8_e4m3"),
        (("--enforce-eager",), "graphs", False),
        (("--pipeline-parallel-size", "2"), "--world-size", None),
        (("--enable-expert-parallel",), "expert_layout", "expert_parallel"),
        (("--tool-call-parser", "glm45"), NOTHING, None),
        (("--speculative-config", NGRAM), "speculate", Speculation("lookup", 5)),
    ],
    "sglang.launch_server": [
        (("--model-path", HERE), "model_dir", HERE),
        (("--tokenizer-path", HERE), "tokenizer_dir", HERE),
        (("--host", "::"), "host", "::"),
        (("--port", "30000"), "port", 30_000),
        (("--tp", "8"), "world_size", 8),
        (("--tp-size", "2"), "world_size", 2),
        (("--dp-size", "2"), "start one `glm serve` for each replica", None),
        (("--ep-size", "8"), "expert_layout", "expert_parallel"),
        (("--mem-fraction-static", "0.875"), "memory_limit", FreeShare(87)),
        (("--context-length", "8192"), "max_seq", 8192),
        (("--max-running-requests", "128"), "max_batch", 128),
        (("--chunked-prefill-size", "2048"), "prefill_chunk", 2048),
        (("--kv-cache-dtype", "fp8_e4m3"), "kv_dtype", "fp8_e4m3"),
        (("--schedule-policy", "fcfs"), "scheduling_policy", "fcfs"),
        (("--disable-radix-cache",), "prefix_cache", False),
        (("--disable-cuda-graph",), "graphs", False),
        (("--attention-backend", "fa3"), "kernels of its own", None),
        (("--reasoning-parser", "glm45"), NOTHING, None),
        (("--enable-metrics",), NOTHING, None),
        (("--nnodes", "2"), "glm runs on one host", None),
    ],
    "llama-server": [
        (("-m", HERE), "model_dir", HERE),
        (("-hf", HERE), "model_dir", HERE),
        (("-c", "4096"), "max_seq", 4096),
        (("--ctx-size", "0"), "max_seq", 0),
        (("-np", "4"), "max_batch", 4),
        (("--parallel", "-1"), "max_batch", None),
        (("-t", "8"), "num_threads", 8),
        (("--threads", "8"), "num_threads", 8),
        (("-ngl", "40"), "choose with --device", None),
        (("--n-gpu-layers", "all"), NOTHING, None),
        (("-fa", "on"), NOTHING, None),
        (("-b", "2048"), "--max-step-tokens", None),
        (("-ub", "512"), "--max-step-tokens", None),
        (("-ctk", "q8_0"), "--kv-dtype", None),
        (("--alias", "air"), "served_names", ("air",)),
        (("--api-key-file", "keys"), "api_key_file", "keys"),
        (("--jinja",), NOTHING, None),
        (("--mlock",), NOTHING, None),
        (("--lora", "a.gguf"), "merge the adapter", None),
        (("--rope-scaling", "yarn"), "--max-seq", None),
    ],
}
OLLAMA = [
    ("serve", "serve"),
    ("start", "serve"),
    ("run", "chat"),
    ("pull", "pull"),
    ("ps", "/v1/models"),
    ("show", "glm inspect MODEL"),
    ("stop", "Ctrl-C"),
    ("create", "glm serve FOLDER"),
    ("cp", "--served-model-name"),
    ("push", "hf upload"),
    ("OLLAMA_HOST", "GLM_HOST"),
    ("OLLAMA_CONTEXT_LENGTH", "GLM_MAX_SEQ"),
    ("OLLAMA_NUM_PARALLEL", "GLM_MAX_BATCH"),
    ("OLLAMA_MAX_QUEUE", "GLM_MAX_QUEUE"),
    ("OLLAMA_KEEP_ALIVE", "until the process ends"),
    ("OLLAMA_MODELS", "HF_HOME"),
    ("OLLAMA_MAX_LOADED_MODELS", "start another"),
    ("OLLAMA_ORIGINS", "GLM_ALLOWED_ORIGIN"),
    ("OLLAMA_KV_CACHE_TYPE", "GLM_KV_DTYPE"),
    ("OLLAMA_FLASH_ATTENTION", "kernels of its own"),
]
ROWS = [
    pytest.param(*row, id=f"{engine} {row[0][0]}") for engine, rows in SERVE.items() for row in rows
]


def parsed(*words, command="serve"):
    return COMMANDS[(command,)].make_context(command, list(words), parent=ROOT_CONTEXT)


def line_of(capsys, *words):
    """Return the one line of a command that must be refused."""
    assert command_line.main(list(words)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_there_are_80():
    assert [len(rows) for rows in (*SERVE.values(), OLLAMA)] == [20] * 4
    for rows in (*SERVE.values(), OLLAMA):
        assert len({row[0] for row in rows}) == 20


@pytest.mark.parametrize(("words", "name", "value"), ROWS)
def test_an_option_of_a_peer_is_taken_or_answered(words, name, value, capsys):
    usual = parsed().params
    if name is NOTHING:
        assert parsed(*words).params == usual
    elif name in usual:
        found = parsed(*words).params
        assert {key: one for key, one in found.items() if key != name} == {
            key: one for key, one in usual.items() if key != name
        }
        is_share = value is SHARE and isinstance(found[name], ShareOfAll)
        assert is_share or found[name] == value
    else:
        line = line_of(capsys, "serve", *words)
        assert line.startswith(f"glm: No such option {words[0]!r}: ")
        assert name in line
        assert "Did you mean" not in line


@pytest.mark.parametrize(("name", "meant"), OLLAMA)
def test_a_command_or_variable_of_ollama_is_taken_or_answered(name, meant, capsys):
    ctx = click.Context(command_line.commands, info_name="glm")
    if name.isupper():
        ctx.invoked_subcommand = "serve"
        warn_of_foreign_variables(ctx, {name: "1"})
        assert meant in capsys.readouterr().err
        ctx.invoked_subcommand = "plan"
        warn_of_foreign_variables(ctx, {name: "1"})
        assert capsys.readouterr().err == ""
    elif meant in command_line.COMMANDS:
        assert command_line.commands.resolve_command(ctx, [name, "x"])[0] == meant
    else:
        assert meant in line_of(capsys, name, "x")


def test_a_share_of_all_memory_is_converted_and_said(monkeypatch, capsys):
    monkeypatch.setattr("glm_engine.core.device_memory.total_bytes", lambda _: 20 * 10**9)
    arguments = ("plan", "--device", "cpu", "--json", "--gpu-memory-utilization")
    assert command_line.main([*arguments, "0.1"]) == 0
    captured = capsys.readouterr()
    assert '"memory_limit_bytes": 2000000000' in captured.out
    expected = "glm: --gpu-memory-utilization 0.1 of 20.0 GB: --memory-limit 2.0GB\n"
    assert captured.err == expected
    monkeypatch.setattr("glm_engine.core.device_memory.total_bytes", lambda _: 10**15)
    assert command_line.main([*arguments, "1"]) == 1
    assert 'fits": false' in capsys.readouterr().out


def test_the_machine_has_as_much_memory_as_the_engine_says():
    from glm_engine.core.device_memory import machine_bytes, total_bytes

    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < machine_bytes() <= pages
    assert total_bytes("cpu") == machine_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--gpu-memory-utilization", "90"),
            "'90' is not a fraction above 0 and up to 1, e.g. 0.9",
        ),
        (("--gpu-memory-utilization", "0"), "'0' is not a fraction above 0"),
        (("--mem-fraction-static", "0.001"), "'0.001' is not a fraction from 0.01 to 1"),
        (("--max-model-len", "0.5q"), "expected a whole number, got '0.5q'"),
        (("--max-model-len", "12", "--max-seq", "13"), "--max-seq and --max-model-len set"),
        (("--ctx-size", "12", "--max-model-len", "13"), "--ctx-size and --max-model-len set"),
        (("--gpu-memory-utilization", "1", "--mem-fraction-static", "1"), "use only one"),
        (("--gpu-memory-utilization", "1", "--memory-limit", "1GB"), "use only one"),
        (("-m", "a", "-hf", "b"), "--model and -hf set the same option"),
        (("--enforce-eager", "--graphs"), "--graphs and --enforce-eager set"),
        (("--kv-cache-dtype", "fp8_e5m2"), "for '--kv-cache-dtype': 'fp8_e5m2' is not one of"),
        (("--kv-dtype", "fp8_e5m2"), "for '--kv-dtype': 'fp8_e5m2' is not one of"),
        (("--context-length", "0.5q"), "for '--context-length': expected a whole number"),
        (("--tp", "-1"), "for '--tp': expected 0 to"),
        (("--ep-size", "many"), "'many' is not a valid number of GPUs"),
        (("--tensor-parallel-size", "-1"), "expected 0 to 2147483647, got -1"),
        (("--tensor-parallel-size", ""), "--tensor-parallel-size: expected a value"),
        (("--tensor-parallel-size",), "'--tensor-parallel-size' requires an argument"),
        (("--allowed-origins", "[1]"), "'[1]' is not a JSON list of strings"),
        (("--tensor-parallel-sizes", "2"), "Did you mean '--tensor-parallel-size'?"),
        (("--max-bach", "2"), "Did you mean '--max-batch'?"),
        (
            ("--speculative-config", '{"method": "eagle", "num_speculative_tokens": 2}'),
            "for '--speculative-config': method is 'eagle'; expected 'mtp' or 'ngram'; glm has no",
        ),
        (("--speculative-config", "ngram"), "'ngram' is not a JSON object; use --speculate"),
        (("-sc", "{}"), "method is missing; expected 'mtp' or 'ngram'"),
        (("-sc", '{"method": ["mtp"]}'), "method is ['mtp']; expected 'mtp' or 'ngram'"),
        (
            ("-sc", '{"method": "mtp", "num_speculative_tokens": true}'),
            "num_speculative_tokens is True; expected 1\n",
        ),
        (("--spec-method", "ngram", "--spec-tokens", "x"), "num_speculative_tokens is 'x'; exp"),
        (("--spec-method", "suffix"), "for '--spec-method': method is 'suffix'; expected"),
        (("--speculative-algorithm", "EAGLE3"), "'EAGLE3' is not one of NEXTN, EAGLE, NGRAM;"),
        (
            ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "0"),
            "--speculative-num-steps is '0'; expected a number from 1",
        ),
        (("--spec-type", "draft-eagle3,none"), "'draft-eagle3' is not none, draft-mtp or an ngram"),
        (("--spec-tokens", "3"), "--spec-tokens needs --speculative-config; or use --speculate"),
        (
            ("--speculative-num-steps", "3"),
            "--speculative-num-steps needs --speculative-algorithm; or use --speculate alone",
        ),
        (("--spec-draft-n-max", "3"), "--spec-draft-n-max needs --spec-type; or use --speculate"),
        (("--mtp", "--speculate", "auto"), "--speculate and --mtp set the same option"),
        (("-sc", '{"method": "ngram"}'), "num_speculative_tokens is missing; expected 1 to 7"),
        (("-sc", NGRAM, "--speculate", "auto"), "--speculate and -sc set the same option"),
        (("--frobnicate",), "No such option '--frobnicate'.\n"),
        (("--max-tokens", "2"), "glm: `glm serve` has no --max-tokens; set max_tokens in each"),
        (("--n-predict", "2"), "No such option '--n-predict': `glm serve` has no --max-tokens;"),
        (("--temperature", "1"), "glm: `glm serve` has no --temperature; set it in each request"),
        (
            ("--max_model_len", "2"),
            "No such option '--max_model_len'. Did you mean '--max-model-len'?",
        ),
        (("--n_predict", "2"), "No such option '--n_predict': `glm serve` has no --max-tokens;"),
        (("--ngl", "40"), "No such option '--ngl': glm runs the whole model on either"),
    ],
)
def test_wrong_values_and_names_are_told(words, message, capsys):
    line = line_of(capsys, "serve", *words)
    assert message in line


EAGLE = ("--speculative-algorithm", "EAGLE", "--speculative-num-steps")
FIELD = "--speculative-config"
ONE = "1 draft token, because the prediction layer drafts no more"
MTP, LOOKUP, AUTO = Speculation("mtp", 1), Speculation("lookup", 7), Speculation("auto", 7)


@pytest.mark.parametrize(
    ("words", "expected", "told"),
    [
        (("-sc", '{"method": "mtp", "num_speculative_tokens": 1}'), MTP, ""),
        (("-sc", '{"method": "mtp"}'), MTP, ""),
        (("-sc", '{"method": "deepseek_mtp", "num_speculative_tokens": 1}'), MTP, ""),
        (("-sc", '{"method": "glm4_moe_mtp", "model": null}'), MTP, ""),
        (
            ("-sc", '{"method": "mtp", "num_speculative_tokens": 3, "quantization": "fp8"}'),
            MTP,
            f"; num_speculative_tokens 3 becomes {ONE}; quantization has no effect",
        ),
        (
            ("-sc", NGRAM.replace("}", ', "prompt_lookup_min": 2}').replace("5", "12")),
            LOOKUP,
            "; num_speculative_tokens 12 becomes 7 draft tokens, the maximum;"
            " prompt_lookup_max and prompt_lookup_min have no effect",
        ),
        (("--spec-method", "mtp", "--spec-tokens", "1"), MTP, ""),
        (("--spec-method", "ngram", "--spec-tokens", "7"), LOOKUP, ""),
        ((f"{FIELD}.method", "mtp", f"{FIELD}.num_speculative_tokens", "1"), MTP, ""),
        (
            ("-sc", '{"method": "ngram"}', f"{FIELD}.num_speculative_tokens", "9"),
            LOOKUP,
            "; num_speculative_tokens 9 becomes 7 draft tokens, the maximum",
        ),
        (("--speculative-algorithm", "NEXTN"), MTP, ""),
        ((*EAGLE, "1", "--speculative-num-draft-tokens", "2"), MTP, ""),
        (
            (*EAGLE, "3", "--speculative-num-draft-tokens", "4"),
            MTP,
            f"; --speculative-num-steps 3 and --speculative-num-draft-tokens 4 become {ONE}",
        ),
        ((*EAGLE, "2"), MTP, f"; --speculative-num-steps 2 becomes {ONE}"),
        (("--speculative-algorithm", "ngram"), LOOKUP, ""),
        (
            ("--speculative-algorithm", "NGRAM", "--speculative-eagle-topk", "8"),
            LOOKUP,
            "; --speculative-eagle-topk has no effect",
        ),
        (
            ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "12"),
            LOOKUP,
            "; --speculative-num-draft-tokens 12 becomes 7 draft tokens, the maximum",
        ),
        (("--spec-type", "draft-mtp", "--spec-draft-n-max", "1"), MTP, ""),
        (
            ("--spec-type", "draft-mtp", "--spec-draft-n-max", "3", "--spec-draft-p-min", "0.5"),
            MTP,
            f"; --spec-draft-n-max 3 becomes {ONE}; --spec-draft-p-min has no effect",
        ),
        (("--spec-type", "ngram-mod"), LOOKUP, ""),
        (
            ("--spec-type", "draft-mtp,ngram-map-k", "--spec-draft-n-max", "2"),
            AUTO,
            "; --spec-draft-n-max has no effect",
        ),
    ],
)
def test_speculation_of_a_peer_becomes_ours_and_it_says_so(words, expected, told, capsys):
    assert parsed(*words).params["speculate"] == expected
    assert capsys.readouterr().err == f"glm: {words[0]}: --speculate {expected}{told}\n"


def test_other_numbers_of_drafts_are_kept():
    words = ("--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "4")
    assert parsed(*words).params["speculate"] == Speculation("lookup", 4)
    words = ("--spec-method", "ngram", "--spec-tokens", "2")
    assert parsed(*words).params["speculate"] == Speculation("lookup", 2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--mtp",), MTP),
        (("--speculative", "auto"), AUTO),
        (("--no-speculate",), Speculation("off", 0)),
    ],
)
def test_near_names_of_our_option_are_taken(words, expected, capsys):
    assert parsed(*words).params["speculate"] == expected
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words",
    [
        ("--draft", "16"),
        ("--draft-max", "16"),
        ("--model-draft", "small.gguf"),
        ("-md", "small.gguf"),
        ("--spec-model", "small"),
        ("--speculative-draft-model-path", "small"),
        ("--lookup-cache-dynamic", "cache.bin"),
    ],
)
def test_options_of_draft_models_are_told_ours(words, capsys):
    line = line_of(capsys, "serve", *words)
    assert line.startswith(f"glm: No such option {words[0]!r}: glm has no draft models: use ")
    assert line.endswith("prediction layer), lookup:N (prompt lookup) or auto.\n")


def test_no_speculation_is_the_default(capsys):
    assert parsed("--spec-type", "none").params == parsed().params
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["--kv-dtype", "--kv-cache-dtype"])
def test_types_of_the_cache_have_the_names_of_peers(name):
    values = ("fp8", "bf16", "auto", "bfloat16")
    found = [parsed(name, value).params["kv_dtype"] for value in values]
    assert found == ["fp8_e4m3", "bfloat16", None, "bfloat16"]


def test_an_option_that_a_command_cannot_use_is_told_by_the_name_that_was_typed(capsys):
    line = line_of(capsys, "chat", "--url", "http://127.0.0.1:9", "--max-model-len", "9", "x")
    assert line == "glm: not allowed with --url: --max-model-len\n"
    line = line_of(capsys, "chat", "--url", "http://127.0.0.1:9", "--max-seq", "9", "x")
    assert line == "glm: not allowed with --url: --max-seq\n"


@pytest.mark.parametrize("name", ["-n", "--max-tokens"])
def test_a_load_test_says_how_to_set_numbers(name, capsys):
    line = line_of(capsys, "load", name, "50")
    assert "use --requests N for the number of requests, or --outputs N for the output" in line


def test_a_name_of_context_that_is_not_shown():
    assert parsed("--n-ctx", "4k").params["max_seq"] == 4000


def test_what_has_no_effect_is_told_unless_it_is_the_default(capsys):
    for words in (("--dtype", "bfloat16"), ("--distributed-executor-backend", "mp")):
        parsed(*words)
        assert capsys.readouterr().err.startswith(f"glm: {words[0]} has no effect: glm ")
    for words in (("--dtype", "auto"), ("--pipeline-parallel-size", "1")):
        parsed(*words)
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (("chat", "What", "is", "the", "capital"), "the capital"),
        (("generate", "a", "b"), "b"),
    ],
)
def test_unquoted_words_are_told_to_be_quoted(words, rest, capsys):
    line = line_of(capsys, *words)
    end = f'put the whole text in quotes, e.g. `glm {words[0]} "Hello, world"`\n'
    assert line == f"glm: Got unexpected words ({rest}): {end}"


def test_a_question_of_two_words_without_quotes_is_told_so(capsys):
    line = line_of(capsys, "chat", "Hello", "there")
    assert line.startswith("glm: MODEL is 'Hello': expected a checkpoint folder or ORG/NAME; if ")
    assert line.endswith(" put the whole question in quotes\n")


def test_a_repeated_option_takes_both_names():
    found = parsed("--allowed-origin", "null", "--cors-origins", "http://a.b,http://c.d").params
    assert found["allowed_origins"] == ("null", "http://a.b", "http://c.d")
    assert parsed("--allowed-origins", '["*"]').params["allowed_origins"] == ("*",)


def test_a_name_that_is_ours_too_converts_its_value():
    @options.command("any")
    @click.option("--max-seq", "--max-model-len", type=options.POSITIVE)
    def command(**values):
        return values

    context = command.make_context("any", ["--max-model-len", "2k"])
    assert context.params == {"max_seq": 2000}


def test_thinking_has_one_name_more(capsys):
    made = [
        parsed(flag, command="chat").params["thinks"] for flag in ("--thinking", "--no-thinking")
    ]
    assert made == [True, False]
    words = [("--reasoning", word) for word in ("on", "off", "auto")]
    assert [parsed(*one, command="chat").params["thinks"] for one in words] == [True, False, None]
    assert "'perhaps' is not one of on, off, auto" in line_of(
        capsys, "chat", "--reasoning", "perhaps"
    )


def test_the_same_value_twice_is_no_conflict():
    assert parsed("--max-seq", "12", "--max-model-len", "12").params["max_seq"] == 12


def test_prompts_of_llama_cpp():
    made = parsed("-p", "Hello", "-n", "5", "--temp", "0.5", command="generate").params
    assert (made["prompt"], made["max_tokens"], made["temperature"]) == ("Hello", 5, 0.5)
    assert parsed("-m", HERE, "-p", "Hello", "-i", command="chat").params["question"] == "Hello"
    assert parsed("-p", "9000").params["port"] == 9000


@pytest.mark.parametrize("words", [("chat", "--url", "http://127.0.0.1:9"), ("load",)])
def test_a_client_takes_a_key_and_warns(words, monkeypatch, capsys):
    monkeypatch.setenv("GLM_API_KEY", "other")
    command, *rest = words
    parsed(*rest, "--api-key", "secret", command=command)
    assert os.environ["GLM_API_KEY"] == "secret"
    assert "use --api-key-file or the variable GLM_API_KEY instead\n" in capsys.readouterr().err
    line = line_of(capsys, *words, "--api-key", "a b")
    assert line.endswith("expected one key without spaces\n")


def test_variables_and_files_are_told_our_names(tmp_path, capsys, monkeypatch):
    path = tmp_path / "glm.toml"
    path.write_text("tensor-parallel-size = 4\n")
    line = line_of(capsys, "plan", "--config", str(path))
    assert line.endswith(": tensor-parallel-size is unknown; did you mean world-size?\n")
    monkeypatch.setenv("GLM_MAX_MODEL_LEN", "64")
    assert command_line.main(["plan", "--device", "cpu"]) == 0
    line = "glm: variable GLM_MAX_MODEL_LEN is unknown; did you mean GLM_MAX_SEQ?\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(("name", "meant"), [("generat", "generate"), ("servee", "serve")])
def test_a_misspelt_command_gets_the_nearest(name, meant, capsys):
    assert line_of(capsys, name) == f"glm: No such command {name!r}. Did you mean {meant!r}?\n"


def all_names():
    rows = [row for rows in peer_options.ALIASES.values() for row in rows]
    names = [name for row in (*rows, *peer_options.ANSWERS) for name in row.names]
    return [*names, *(name for row in rows for name in row.details)]


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_no_name_hides_one_of_ours(path):
    command = COMMANDS[path]
    own = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts)}
    foreign = [one for one in command.get_params(ROOT_CONTEXT) if isinstance(one, Foreign)]
    assert len({one.opts[0] for one in foreign}) == len(foreign)
    for one in foreign:
        assert one.opts[0] not in own or one.target is own[one.opts[0]]
    assert all(re.fullmatch(r"--?[a-zA-Z0-9][\w.-]*", name) for name in all_names())


def test_answers_name_options_that_are_here():
    params = [param for one in COMMANDS.values() for param in one.params]
    known = {flag for param in params for flag in (*param.opts, *param.secondary_opts)}
    texts = [one.text for one in peer_options.ANSWERS]
    texts += [*peer_commands.ANSWERS.values(), *peer_commands.VARIABLES.values()]
    for text in texts:
        assert set(re.findall(r"(?<!\w)--[a-z-]+", text)) <= known | {"--help"}, text
