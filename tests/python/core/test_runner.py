"""The runner against a recorded engine: order, stops, back-pressure, failures."""

import time
from collections import deque

import pytest

from glm_engine.core.errors import EngineError, Status
from glm_engine.core.requests import Event, Request, Sampling
from glm_engine.core.runner import CANCEL_SECONDS, Prompt, Runner


class RecordedEngine:
    """Answers each request with the tokens of its script, one event a poll."""

    def __init__(self, capacity=8, failure=None):
        self.capacity = capacity
        self.failure = failure
        self.queues = {}
        self.cancelled = []
        self.num_submitted = 0
        self.most_live = 0

    def info(self):
        return {"eos_tokens": [ord("$")]}

    def submit(self, request):
        if len(self.queues) >= self.capacity:
            raise EngineError("engine_submit", Status.GLM_QUEUE_FULL, "queue is full")
        self.num_submitted += 1
        request_id = self.num_submitted
        tokens = list(request.prompt)[: request.max_tokens]
        self.queues[request_id] = deque(
            [self.event(request_id, "token", token, index) for index, token in enumerate(tokens)]
            + [self.last_event(request_id)]
        )
        self.most_live = max(self.most_live, len(self.queues))
        return request_id

    def last_event(self, request_id):
        if self.failure:
            return self.event(request_id, "failed", message=self.failure)
        return self.event(request_id, "finished", reason="length")

    @staticmethod
    def event(request_id, kind, token=0, index=0, reason="none", message=""):
        status = Status.GLM_NUMERIC_ERROR if kind == "failed" else Status.GLM_OK
        return Event(
            request_id,
            kind,
            reason,
            status,
            token,
            index,
            prompt_tokens=1,
            cached_tokens=0,
            logprob=-0.5,
            top_logprobs=[(token, -0.5)],
            time_ns=(index + 1) * 10**9,
            message=message,
        )

    def wait(self, _seconds):
        return bool(self.queues)

    def poll(self):
        events = [queue.popleft() for queue in list(self.queues.values()) if queue]
        for event in events:
            if event.ends_request:
                self.queues.pop(event.request_id, None)
        return events

    def cancel_quietly(self, request_id):
        self.cancelled.append(request_id)
        if request_id not in self.queues:
            return False
        self.queues[request_id] = deque([self.event(request_id, "finished", reason="cancelled")])
        return True


class Letters:
    """A tokenizer whose token ids are code points."""

    def detokenizer(self, _skip_special_tokens):
        from glm_engine.text.tokenizer import IncrementalDetokenizer

        return IncrementalDetokenizer(lambda token: chr(token).encode())


def prompt_of(text, **values):
    stop_texts = values.pop("stop_texts", ())
    return Prompt(Request([ord(letter) for letter in text], **values), stop_texts)


@pytest.mark.parametrize(
    ("min_tokens", "text"),
    [(0, "a"), (2, "a"), (3, "abcda"), (6, "abcda"), (7, "abcdabcd"), (8, "abcdabcd")],
)
def test_a_stop_text_counts_where_it_ends_behind_the_least_number(min_tokens, text):
    prompt = prompt_of("abcdabcd", stop_texts=("bc",), min_tokens=min_tokens, max_tokens=9)
    [done] = Runner(RecordedEngine(), Letters()).run_all([prompt])
    stops = text != "abcdabcd"
    assert (done.text, done.finish_reason) == (text, "stop_text" if stops else "length")


def test_an_end_token_is_no_text_where_it_ends_the_answer():
    runner = Runner(RecordedEngine(), Letters())
    ended, ignored = runner.run_all([prompt_of("ab$"), prompt_of("a$b", ignore_eos=True)])
    assert (ended.text, ended.tokens) == ("ab", [ord("a"), ord("b"), ord("$")])
    assert ignored.text == "a$b"


def test_text_comes_in_pieces():
    runner = Runner(RecordedEngine(), Letters())
    pieces = [(text, done) for _, text, done in runner.run([prompt_of("abc")])]
    assert pieces == [("a", False), ("b", False), ("c", False), ("", True)]


@pytest.mark.parametrize("num_prompts", [0, 1, 2, 33])
@pytest.mark.parametrize("capacity", [1, 8])
def test_results_come_in_the_given_order(num_prompts, capacity):
    engine = RecordedEngine(capacity)
    texts = ["x" * (num_prompts - index) + "y" for index in range(num_prompts)]
    finished = []
    done = Runner(engine, Letters()).run_all(map(prompt_of, texts), finished.append)
    assert [one.text for one in done] == texts
    assert len(finished) == num_prompts
    assert engine.most_live == min(num_prompts, capacity)


def test_full_queue_with_nothing_running_is_an_error():
    with pytest.raises(EngineError, match="queue is full"):
        Runner(RecordedEngine(capacity=0), Letters()).run_all([prompt_of("a")])


def test_stop_text_cancels_and_hides():
    engine = RecordedEngine()
    [done] = Runner(engine, Letters()).run_all([prompt_of("one.two", stop_texts=("e.t",))])
    assert (done.text, done.finish_reason) == ("on", "stop_text")
    assert engine.cancelled == [1]
    assert len(done.tokens) == 5


def test_stop_text_on_the_last_token():
    engine = RecordedEngine()
    [done] = Runner(engine, Letters()).run_all([prompt_of("ab", stop_texts=("b",))])
    assert (done.text, done.finish_reason) == ("a", "stop_text")


def test_text_held_back_for_a_stop_comes_at_the_end():
    runner = Runner(RecordedEngine(), Letters())
    pieces = [text for _, text, _ in runner.run([prompt_of("ab", stop_texts=("bc",))])]
    assert pieces == ["a", "", "b"]


def test_failure_names_its_cause_and_cancels_the_others():
    engine = RecordedEngine(failure="layer 2: not finite")
    runner = Runner(engine, Letters())
    with pytest.raises(EngineError, match="layer 2: not finite") as caught:
        runner.run_all([prompt_of("a"), prompt_of("abcdef")])
    assert caught.value.status == Status.GLM_NUMERIC_ERROR
    assert engine.cancelled == [2]
    assert runner.live == {}


def test_leaving_early_cancels_what_runs():
    engine = RecordedEngine()
    runner = Runner(engine, Letters())
    events = runner.run([prompt_of("abc"), prompt_of("def")])
    next(events)
    events.close()
    assert sorted(engine.cancelled) == [1, 2]
    assert engine.queues == {}


def test_an_interruption_waits_for_nothing_whose_end_was_polled():
    def interrupt(_generation):
        raise KeyboardInterrupt

    engine = RecordedEngine()
    runner = Runner(engine, Letters())
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner.run_all([prompt_of(text) for text in ("a", "b", "cd")], interrupt)
    assert time.monotonic() - began < CANCEL_SECONDS / 2
    assert (engine.queues, runner.live) == ({}, {})


def test_rates_count_what_was_timed():
    [done] = Runner(RecordedEngine(), Letters()).run_all([prompt_of("abcde")])
    assert done.decode_rate() == pytest.approx(1.0)
    done.submitted = 0.0
    assert done.prefill_rate() == pytest.approx(5.0)


@pytest.mark.parametrize(("text", "max_tokens"), [("a", 1), ("abc", 1)])
def test_one_token_has_no_decode_rate(text, max_tokens):
    [done] = Runner(RecordedEngine(), Letters()).run_all([prompt_of(text, max_tokens=max_tokens)])
    assert done.decode_rate() is None


def test_logprobs_only_when_asked():
    sampling = Sampling(num_logprobs=1)
    asked, plain = Runner(RecordedEngine(), Letters()).run_all(
        [prompt_of("a", sampling=sampling), prompt_of("a")]
    )
    top = [{"token_id": 97, "logprob": -0.5}]
    assert asked.logprobs == [{"token_id": 97, "logprob": -0.5, "top": top}]
    assert plain.logprobs == []
