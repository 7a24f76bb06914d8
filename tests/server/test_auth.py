"""API keys: in files, hashed or not, in the environment; what they guard."""

import hashlib

import openai
import pytest

from glm_engine.commands.serve import command
from glm_engine.core.errors import BadInputError
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.auth import LOGGED_DIGITS, KeyRing
from tests.server.serving import MODEL, QUESTION, ROOT

PATH = "/v1/completions"


def test_help_and_page_explain_the_key_in_the_log() -> None:
    params = {one.name: one for one in command.params}
    assert f"first {LOGGED_DIGITS} digits of its SHA-256" in params["api_key_file"].help
    page = (ROOT / "docs" / "serving.md").read_text("utf-8")
    assert f"the first {LOGGED_DIGITS} digits of the key's SHA-256 digest" in page


def bearer(key):
    return [(b"authorization", f"Bearer {key}".encode())]


def test_keys_of_all_sources(tmp_path) -> None:
    path = tmp_path / "keys"
    digest = hashlib.sha256(b"second").hexdigest()
    path.write_text(f"# of team one\nfirst\n\n  # of team two\n  sha256:{digest}\n")
    ring = KeyRing(path, {"GLM_API_KEYS": "third fourth"})
    for key in ("first", "second", "third", "fourth"):
        named = ring.check(PATH, bearer(key))
        assert named == hashlib.sha256(key.encode()).hexdigest()[:8]
        assert ring.check(PATH, [(b"x-api-key", key.encode())]) == named
    for wrong in ("", "firs", "first2", digest, f"sha256:{digest}", "\xff", "# of team one"):
        with pytest.raises(ApiError) as caught:
            ring.check(PATH, bearer(wrong))
        assert caught.value.status_code == 401
    with pytest.raises(ApiError):
        ring.check(PATH, [])
    assert "first" not in repr(vars(ring))


def test_either_of_two_headers_is_enough(tmp_path) -> None:
    path = tmp_path / "keys"
    path.write_text("known")
    ring = KeyRing(path, {})
    known, other = b"known", b"other"
    for first, second in ((known, other), (other, known)):
        headers = [(b"x-api-key", first), (b"authorization", b"bearer " + second)]
        for order in (headers, headers[::-1]):
            assert ring.check(PATH, order) == hashlib.sha256(known).hexdigest()[:8]
    with pytest.raises(ApiError, match="incorrect API key"):
        ring.check(PATH, [(b"x-api-key", other), *bearer("another")])
    with pytest.raises(ApiError, match="missing API key"):
        ring.check(PATH, [(b"authorization", b"Basic known")])


@pytest.mark.parametrize("prefix", ["SHA256:", "Sha256:", "\ufeffsha256:", "\ufeffSHA256:"])
def test_the_line_of_a_digest_is_no_key_however_it_is_written(tmp_path, prefix) -> None:
    path, line = tmp_path / "keys", prefix + hashlib.sha256(b"known").hexdigest().upper()
    path.write_text(f"{line}\n", encoding="utf-8")
    for ring in (KeyRing(path, {}), KeyRing(None, {"GLM_API_KEYS": line})):
        assert ring.check(PATH, bearer("known"))
        for wrong in (line, line.lstrip("\ufeff"), line.lower(), line.partition(":")[2]):
            with pytest.raises(ApiError):
                ring.check(PATH, [(b"x-api-key", wrong.encode())])


def test_byte_order_marks_are_no_part_of_a_key(tmp_path) -> None:
    path = tmp_path / "keys"
    path.write_text("\ufefffirst\n\ufeffsecond\n\ufeff# of team two\n", encoding="utf-8")
    ring = KeyRing(path, {"GLM_API_KEYS": "\ufeffthird"})
    for key in ("first", "second", "third"):
        assert ring.check(PATH, bearer(key)) == hashlib.sha256(key.encode()).hexdigest()[:8]
    assert len(ring.digests) == 3


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/gauges", "/page/a.js"])
def test_what_is_open(tmp_path, path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("one")
    assert KeyRing(keys, {}).check(path, []) is None


def test_without_keys_all_are_let_in() -> None:
    assert KeyRing(None, {}).check(PATH, []) is None


@pytest.mark.parametrize("text", ["", "\n \n", "# none yet\n", "sha256:12", "sha256:xyz"])
def test_files_without_usable_keys(tmp_path, text) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(BadInputError, match="keys"):
        KeyRing(path, {})
    with pytest.raises(BadInputError, match="cannot read the API key file"):
        KeyRing(tmp_path / "absent", {})


def test_each_source_that_is_stated_holds_a_key(tmp_path) -> None:
    path = tmp_path / "keys"
    path.write_text("# none yet\n")
    with pytest.raises(BadInputError, match="keys: expected at least one API key"):
        KeyRing(path, {"GLM_API_KEYS": "known"})
    with pytest.raises(BadInputError, match="GLM_API_KEYS: expected at least one API key"):
        KeyRing(None, {"GLM_API_KEYS": " \n"})


def test_keys_of_the_command_line_are_taken_beside_others(start_server, tmp_path) -> None:
    path = tmp_path / "keys"
    path.write_text("third")
    digest = f"sha256:{hashlib.sha256(b'second').hexdigest()}"
    keys = ("--api-key", "first", "--api-key", digest, "--api-key-file", path)
    server = start_server(*keys)
    for key in ("first", "second", "third"):
        assert server.http.get("/v1/models", headers={"x-api-key": key}).status_code == 200
    for key in ("first2", digest):
        assert server.http.get("/v1/models", headers={"x-api-key": key}).status_code == 401
    assert server.log().count("other users on this machine can read --api-key") == 1
    assert "first" not in server.log()


def test_keys_that_nobody_sees_are_no_matter_for_a_warning(start_server) -> None:
    server = start_server(environment={"GLM_API_KEY": "one two"})
    for key, status in (("one", 200), ("two", 200), ("one two", 401)):
        assert server.http.get("/v1/models", headers={"x-api-key": key}).status_code == status
    assert "other users" not in server.log()


def test_the_server_asks_for_a_key(start_server, tmp_path) -> None:
    path = tmp_path / "keys"
    path.write_text("secret\n")
    server = start_server("--api-key-file", path, environment={"GLM_API_KEYS": "other"})
    for key in ("secret", "other"):
        with server.openai(api_key=key) as client:
            answer = client.completions.create(model=MODEL, prompt=QUESTION)
            assert answer.choices[0].text == " Paris."
    with (
        server.openai(api_key="wrong") as client,
        pytest.raises(openai.AuthenticationError) as caught,
    ):
        client.completions.create(model=MODEL, prompt=QUESTION)
    assert caught.value.code == "invalid_api_key"
    assert server.http.post("/tokenize", json={"prompt": "x"}).status_code == 401
    assert server.http.post("/v1/responses", json={"input": "x"}).status_code == 401
    assert server.http.get("/v1/responses/resp_1").status_code == 401
    assert server.http.get("/v1/models").status_code == 401
    assert server.http.get("/readyz").status_code == 200
    assert "secret" not in server.log()
