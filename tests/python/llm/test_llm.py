"""`LLM` and `AsyncLLM`: many prompts, pieces, cancelling, closing, what is refused."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

import glm_engine
from glm_engine import LLM, AsyncLLM, BadInputError, SamplingParams
from glm_engine.core.errors import EngineError, GlmError, Status
from tests.endless import CONTEXT, NUM_PAGES, link_endless_model
from tests.linked import GENERATION, TOKENIZER, link_capitals, stating
from tests.server.serving import ENVIRONMENT

QUESTION = "The capital of France is"
TALK = [{"role": "user", "content": "What is the capital of Austria?"}]
GREEDY = SamplingParams(temperature=0, max_tokens=8)
ENDLESS = SamplingParams(ignore_eos=True, max_tokens=60_000)
CPU = {"device": "cpu", "num_threads": 1, "quiet": True}
INTERRUPTED = """
import os, signal, threading
import psutil
from glm_engine import LLM, SamplingParams

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

options = {"max_model_len": 65536, "num_pages": 8192}
llm = LLM(MODEL, device="cpu", num_threads=1, quiet=True, **options)
schema = {"type": "object"}
endless = SamplingParams(ignore_eos=True, max_tokens=60000)
llm.chat([{"role": "user", "content": "x"}], SamplingParams(structured_outputs={"json": schema}))
timer = threading.Timer(0.7, interrupt)
timer.start()
try:
    llm.generate(["The capital"] * 300, endless)
    print("not interrupted")
except KeyboardInterrupt:
    timer.join()
    info = llm._session.model.engine.info()
    print("live", info["live_requests"], "waiting", info["waiting_requests"])
    print("usable", llm.generate("The capital of France is", SamplingParams(temperature=0)))
llm.close()
print("threads", threading.active_count(), "children", len(psutil.Process().children(True)))
"""


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A model whose answers take minutes, for tests that end them."""
    model = link_endless_model(tmp_path_factory.mktemp("endless"))
    with LLM(str(model), max_model_len=CONTEXT, num_pages=NUM_PAGES, **CPU) as opened:
        yield opened


def gauges(llm: LLM) -> dict:
    return llm._open().model.engine.info()


def test_a_thousand_prompts_in_one_call():
    prompts = [f"The capital of country {number} is" for number in range(1000)]
    with LLM(max_num_seqs=16, **CPU) as llm:
        outputs = llm.generate(prompts, GREEDY)
        alone = llm.generate(prompts[437], GREEDY)
    assert [one.prompt for one in outputs] == prompts
    assert all(one.outputs[0].finish_reason in ("stop", "length") for one in outputs)
    assert outputs[437].outputs == alone[0].outputs


def test_each_prompt_has_its_own_parameters(llm: LLM):
    params = [SamplingParams(temperature=0, max_tokens=count) for count in (1, 2)]
    outputs = llm.generate([QUESTION, {"prompt_token_ids": [277, 267]}], params)
    assert [len(one.outputs[0].token_ids) for one in outputs] == [1, 2]
    assert outputs[1].prompt is None
    assert outputs[1].prompt_token_ids == [277, 267]


def test_a_list_of_conversations(llm: LLM):
    outputs = llm.chat([TALK, [{"role": "user", "content": "Hi"}]], GREEDY)
    assert len(outputs) == 2
    assert outputs[0].outputs[0].content == outputs[0].outputs[0].text
    message = outputs[0].outputs[0].message()
    assert message["role"] == "assistant"
    [again] = llm.chat([*TALK, message, *TALK], GREEDY)
    assert again.outputs[0].content


def test_no_prompts_give_no_outputs(llm: LLM):
    assert llm.generate([]) == []
    assert list(llm.stream([])) == []


def test_a_seed_of_the_model_makes_a_program_repeatable():
    params = SamplingParams(temperature=2, max_tokens=12, ignore_eos=True)
    runs = []
    for seed in (7, 7, 8):
        with LLM(seed=seed, **CPU) as llm:
            runs.append([one.outputs[0].token_ids for one in llm.generate([QUESTION] * 2, params)])
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]


def test_speculation_changes_no_text(llm: LLM):
    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    form = SamplingParams(seed=1, max_tokens=60, structured_outputs={"json": {"type": "object"}})
    with LLM(speculate="lookup:4", memory_limit="2GB", kv_dtype="float32", **CPU) as drafting:
        for one in (params, form):
            found = drafting.generate(QUESTION, one)[0].outputs
            assert found == llm.generate(QUESTION, one)[0].outputs


def test_a_stream_and_a_call_run_beside_each_other(endless: LLM):
    stream = endless.stream(QUESTION, ENDLESS)
    assert next(stream).token_ids
    assert endless.generate(QUESTION, GREEDY)[0].outputs[0].text == " Paris."
    assert next(stream).token_ids
    stream.close()
    assert gauges(endless)["live_requests"] == 0


def test_threads_share_a_model(llm: LLM):
    expected = llm.generate(QUESTION, GREEDY)[0].outputs
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(llm.generate, [QUESTION] * 5, GREEDY) for _ in range(16)]
        found = [one.outputs for call in calls for one in call.result(60)]
    assert found == [expected] * 80


def test_a_stream_that_nobody_reads_is_cancelled(endless: LLM):
    stream = endless.stream([QUESTION] * 3, ENDLESS)
    next(stream)
    del stream
    gc.collect()
    assert gauges(endless)["live_requests"] == 0


def test_closing_ends_streams_processes_and_the_engine(endless: LLM):
    other = LLM(str(endless._open().model.folder), **CPU)
    other.chat(TALK, SamplingParams(max_tokens=2, structured_outputs={"regex": "a"}))
    stream = other.stream(QUESTION, SamplingParams(ignore_eos=True, max_tokens=2000))
    next(stream)
    before = len(psutil.Process().children(recursive=True))
    other.close()
    other.close()
    assert len(psutil.Process().children(recursive=True)) < before
    with pytest.raises(BadInputError, match="cancelled"):
        list(stream)
    with pytest.raises(BadInputError, match="this LLM is closed"):
        other.generate(QUESTION)


def test_ctrl_c_cancels_all_and_leaves_nothing_behind(tmp_path):
    script = INTERRUPTED.replace("MODEL", repr(str(link_endless_model(tmp_path))))
    result = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("live 0 waiting 0\nusable [RequestOutput(")
    assert result.stdout.endswith("threads 1 children 0\n")


def test_ctrl_c_ends_a_program_that_does_not_expect_it(tmp_path):
    script = INTERRUPTED.replace("except KeyboardInterrupt", "except ZeroDivisionError")
    script = script.replace("MODEL", repr(str(link_endless_model(tmp_path))))
    with subprocess.Popen(
        [sys.executable, "-c", script], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        _, error = process.communicate(timeout=100)
    assert error.endswith("KeyboardInterrupt\n")
    assert process.returncode == -2
    assert not [one for one in psutil.process_iter(["ppid"]) if one.info["ppid"] == process.pid]


def test_a_cancelled_task_leaves_the_engine(endless: LLM):
    async def ask() -> int:
        folder = str(endless._open().model.folder)
        async with AsyncLLM(folder, max_model_len=CONTEXT, num_pages=NUM_PAGES, **CPU) as other:
            task = asyncio.create_task(other.generate([QUESTION] * 100, ENDLESS))
            async for chunk in other.stream(QUESTION, ENDLESS):
                assert chunk.token_ids
                break
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await other.generate(QUESTION, GREEDY)
            for _ in range(100):
                await asyncio.sleep(0.02)
                live = other._open().model.engine.info()["live_requests"]
                if not live:
                    break
            return live

    assert asyncio.run(ask()) == 0
    assert not [one for one in threading.enumerate() if one.name.startswith("glm-prompts")]


def test_an_async_model_belongs_to_one_loop_and_closes_once():
    model = AsyncLLM(**CPU)
    [first] = asyncio.run(model.generate(QUESTION, GREEDY))
    [second] = asyncio.run(model.generate(QUESTION, GREEDY))
    assert first.outputs == second.outputs
    asyncio.run(model.close())
    asyncio.run(model.close())
    with pytest.raises(BadInputError, match="this AsyncLLM is closed"):
        asyncio.run(model.generate(QUESTION))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llm: llm.generate(5), r"prompts: expected a list, got 5"),
        (lambda llm: llm.generate([QUESTION, None]), r"prompts\[1\]: expected a string or a list"),
        (lambda llm: llm.generate([QUESTION, ""]), r"prompts\[1\]: expected at least one token"),
        (lambda llm: llm.generate([[1, -2]]), r"prompts\[0\]\[1\]: expected a token id from 0 to"),
        (lambda llm: llm.generate({"promt": "x"}), r"prompts\[0\]: expected a dictionary with"),
        (lambda llm: llm.generate(QUESTION, {"n": 1}), r"sampling_params: expected a list, got"),
        (
            lambda llm: llm.generate([QUESTION] * 2, [GREEDY] * 3),
            r"sampling_params: expected one for each of 2 prompts, got 3",
        ),
        (
            lambda llm: llm.generate([QUESTION, [7] * 9000]),
            r"prompts\[1\]: expected at most \d+ tokens \(max_model_len\), got 9000",
        ),
        (
            lambda llm: llm.generate(QUESTION, SamplingParams(max_tokens=10**6)),
            r"prompts\[0\]: .* got 5 in the prompt and 1000000 to generate",
        ),
        (
            lambda llm: llm.generate(QUESTION, SamplingParams(stop_token_ids=[10**6])),
            r"SamplingParams.stop_token_ids: expected token ids from 0 to \d+, got 1000000",
        ),
        (
            lambda llm: llm.generate(QUESTION, SamplingParams(structured_outputs={"regex": "("})),
            r"structured_outputs.regex: ",
        ),
        (lambda llm: llm.chat([[]]), r"messages\[0\]: expected at least one message, got none"),
        (lambda llm: llm.chat("Hi"), r"messages: expected a list, got 'Hi'"),
        (
            lambda llm: llm.chat([TALK, [{"role": "usr", "content": "x"}]]),
            r"messages\[1\]\[0\].role: expected one of system, .* got 'usr'",
        ),
        (
            lambda llm: llm.chat([{"role": "user", "content": [{"type": "image_url"}]}]),
            r"messages\[0\].content\[0\].type: expected text or refusal, got 'image_url'",
        ),
        (
            lambda llm: llm.chat([{"role": "user"}]),
            r"messages\[0\].content: expected text in a message with role user",
        ),
        (lambda llm: llm.chat(TALK, tool=[]), r"ChatOptions: unknown field 'tool'; did you mean"),
        (lambda llm: llm.chat(TALK, tools=[{}]), r"tools\[0\].type: expected 'function', got None"),
        (
            lambda llm: llm.chat(TALK, tool_choice="required"),
            r"tool_choice: expected at least one tool in tools",
        ),
        (lambda llm: llm.chat(TALK, thinking="yes"), r"ChatOptions.thinking: expected True or"),
        (
            lambda llm: llm.chat(TALK, chat_template_kwargs={"messages": 1}),
            r"chat_template_kwargs: cannot set messages",
        ),
        (
            lambda llm: llm.chat(TALK, continue_final_message=True),
            r"continue_final_message: expected the last of messages to be text of the assistant",
        ),
        (lambda llm: llm.score(QUESTION, 21), r"num_best: expected a whole number from 0 to 20"),
    ],
)
def test_what_a_call_refuses(llm: LLM, call, message):
    with pytest.raises(BadInputError, match=message):
        call(llm)
    assert gauges(llm)["live_requests"] == 0


class LostEngine:
    """An engine whose calls of one kind fail, as those of a lost device do."""

    def __init__(self, engine, failing: str):
        self.engine, self.failing = engine, failing

    def __getattr__(self, name: str):
        return self.fail if name == self.failing else getattr(self.engine, name)

    def fail(self, *_arguments):
        raise EngineError("engine_poll", Status.GLM_DEVICE_ERROR, "the device is lost")


@pytest.mark.parametrize("failing", ["wait", "poll", "submit"])
def test_a_lost_engine_ends_each_call_with_its_error(failing):
    with LLM(**CPU) as llm:
        driver = llm._open().driver
        driver.engine, whole = LostEngine(driver.engine, failing), driver.engine
        with pytest.raises(EngineError, match="the device is lost"):
            llm.generate([QUESTION] * 200, GREEDY)
        assert not driver.running
        assert not driver.waiting
        driver.engine = whole
        assert llm.generate(QUESTION, GREEDY)[0].outputs[0].text == " Paris."


def test_a_lost_engine_ends_the_calls_of_tasks():
    async def ask() -> None:
        async with AsyncLLM(**CPU) as llm:
            driver = llm._open().driver
            driver.engine = LostEngine(driver.engine, "poll")
            calls = [llm.generate(QUESTION, GREEDY) for _ in range(3)]
            found = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
            assert [str(one) for one in found] == ["the device is lost"] * 3
            driver.engine = driver.engine.engine

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_modellen": 8}, "LLM: unknown field 'max_modellen'; did you mean 'max_model_len'"),
        ({"max_num_seqs": -1}, "LLM: max_num_seqs: expected a whole number from 0 to"),
        ({"device": "tpu"}, "LLM: device: expected one of auto, cpu, cuda, futhark, got 'tpu'"),
        ({"world_size": "two"}, "LLM: world_size: expected a whole number"),
        ({"speculate": "lookup:99"}, "LLM: speculate: expected off, lookup:N"),
        ({"memory_limit": "much"}, "LLM: memory_limit: expected a size"),
        ({"kv_dtype": "int4"}, "LLM: kv_dtype: 'int4' is not one of"),
        ({"prefix_cache": 1}, "LLM: prefix_cache: expected True or False, got 1"),
        ({"seed": -1}, "LLM: seed: expected a whole number from 0"),
        ({"model": 5}, "LLM: model: expected a string, got 5"),
        ({"model": "/no/such/folder"}, "/no/such/folder: no such folder; expected a checkpoint"),
    ],
)
def test_what_a_model_refuses(options, message):
    with pytest.raises(GlmError) as refused:
        LLM(**{**CPU, **options})
    assert str(refused.value).startswith(message)


def test_a_model_without_a_template_generates_but_does_not_chat(tmp_path):
    model = link_capitals(tmp_path, {})
    (model / "chat_template.jinja").unlink()
    with LLM(str(model), **CPU) as llm:
        assert llm.generate(QUESTION, GREEDY)[0].outputs[0].text == " Paris."
        with pytest.raises(BadInputError, match="this model has no chat template; use generate"):
            llm.chat(TALK)


def test_generation_config_gives_the_defaults(tmp_path, llm: LLM):
    model = link_capitals(tmp_path, {GENERATION: stating(do_sample=False, top_k=9)})
    with LLM(str(model), **CPU) as greedy:
        found = greedy.generate([QUESTION] * 3, SamplingParams(max_tokens=8))
    expected = llm.generate(QUESTION, GREEDY)[0].outputs
    assert [one.outputs for one in found] == [expected] * 3
    (tmp_path / "wrong").mkdir()
    wrong = link_capitals(tmp_path / "wrong", {GENERATION: stating(top_p=3)})
    with pytest.raises(BadInputError, match=r"generation_config.json: top_p: expected a number"):
        LLM(str(wrong), **CPU)


def test_the_package_is_cheap_until_a_name_is_used():
    script = (
        "import sys, glm_engine; heavy = {'numpy', 'tokenizers', 'typing', 'click', 'pydantic'};"
        "print(sorted(heavy & set(sys.modules)), glm_engine.__version__, 'LLM' in dir(glm_engine))"
    )
    command = [sys.executable, "-S", "-c", script]
    environment = {**os.environ, "PYTHONPATH": ENVIRONMENT["PYTHONPATH"]}
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout == f"[] {glm_engine.__version__} True\n"


def test_each_public_name_is_there():
    for name in glm_engine.__all__:
        assert getattr(glm_engine, name)
    with pytest.raises(AttributeError, match="has no attribute 'LMM'"):
        _ = glm_engine.LMM
    assert TOKENIZER
