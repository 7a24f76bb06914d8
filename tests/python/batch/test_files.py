"""The files of a batch: what is read, dropped, skipped and refused."""

import json

import pytest

from glm_engine.batch.requests_file import RequestsFile
from glm_engine.batch.results_file import ResultsFile
from glm_engine.core.errors import BadInputError

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
LINE = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}


def written(path, *lines):
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    path.write_text("".join(f"{one}\n" for one in texts), encoding="utf-8")
    return path


def opened(folder, known=("a", "b")):
    return ResultsFile(folder / "results", known)


def test_requests_keep_their_order_and_bodies(tmp_path):
    texts = [{**LINE, "custom_id": name, "body": {"prompt": name * 3}} for name in ("b", "ä", "c")]
    path = written(tmp_path / "requests", "", *texts, "  ")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**LINE, "custom_id": "last line without its end"}))
    requests = RequestsFile(path)
    bodies = [json.loads(requests.body(one)) for one in requests.requests]
    assert bodies == [*(one["body"] for one in texts), CHAT]
    requests.close()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "2: not valid JSON: "),
        ("[]", "2: expected a JSON object, got []"),
        ({**LINE, "custom_id": ""}, "2: custom_id: expected a string that is not empty, got ''"),
        ({**LINE, "custom_id": 7}, "2: custom_id: expected a string that is not empty, got 7"),
        ({**LINE, "method": "GET"}, "2: method: expected 'POST', got 'GET'"),
        ({**LINE, "url": "/v1/embeddings"}, "2: url: expected one of /v1/chat/completions, /v1/c"),
        ({**LINE, "body": None}, "2: body: expected an object, got nothing"),
        ({**LINE, "body": {"stream": True}}, "2: body.stream: expected false, got True"),
        ({**LINE, "custom_id": "first"}, "2: custom_id 'first' stands in line 1, too"),
    ],
)
def test_a_wrong_request_is_named_by_its_line(tmp_path, line, message):
    path = written(tmp_path / "requests", {**LINE, "custom_id": "first"}, line)
    with pytest.raises(BadInputError) as refused:
        RequestsFile(path)
    assert str(refused.value).startswith(f"{path}:{message}")


def test_a_result_is_one_line_and_is_known_at_the_next_start(tmp_path):
    results = opened(tmp_path)
    results.write("a", 200, "req", b'{"choices":[]}')
    results.close()
    [line] = (tmp_path / "results").read_text().splitlines()
    found = json.loads(line)
    assert found.pop("id").startswith("batch_req_")
    response = {"status_code": 200, "request_id": "req", "body": {"choices": []}}
    assert found == {"custom_id": "a", "response": response, "error": None}
    again = opened(tmp_path)
    assert again.done == {"a"}
    again.close()


def test_a_torn_line_is_dropped_wherever_it_was_torn(tmp_path):
    results = opened(tmp_path)
    for name in ("a", "b"):
        results.write(name, 200, "req", b"{}")
    results.close()
    path = tmp_path / "results"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        again = opened(tmp_path)
        assert again.done == {"a"}
        assert path.read_bytes() == whole[:first]
        again.close()


@pytest.mark.parametrize("content", [b"my notes", b"my notes\n", b'{"id":"other"}\n', b"{}"])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "results"
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="1: expected a result of glm batch; give the path of"):
        opened(tmp_path)
    assert path.read_bytes() == content


def test_results_of_other_requests_are_refused(tmp_path):
    results = opened(tmp_path)
    results.write("b", 200, "req", b"{}")
    results.close()
    with pytest.raises(BadInputError, match="1: custom_id 'b' is not among the requests"):
        opened(tmp_path, known=("a",))


def test_two_commands_do_not_write_one_file(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(BadInputError, match="another glm batch is writing this file"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_device_is_no_file_for_results(tmp_path):
    (tmp_path / "results").symlink_to("/dev/full")
    with pytest.raises(BadInputError, match="expected the path of a regular file"):
        opened(tmp_path)
