"""The comparison of engines: what a folder of it holds, its tables, and a run."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from glm_engine.text.tokenizer import GlmTokenizer
from tests.server.serving import held_port
from tools.bench.peers import checkpoint, results
from tools.bench.peers.__main__ import main
from tools.bench.peers.decode import Meter
from tools.bench.peers.servers import SERVERS, PeerError, Place, running, version_of
from tools.checkpoint.random_model import small_config

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
COMPARISON = BENCHMARKS / "comparison"
CAPITALS = ROOT / "checkpoints" / "capitals"
OPTIONS = "--device cpu --threads 1 --max-seq 288"


@pytest.fixture
def free_port():
    with held_port() as port:
        yield port


@pytest.fixture(scope="module")
def sides():
    return results.read(COMPARISON)


def test_the_committed_figures_are_of_three_engines_with_their_versions(sides):
    named = [results.named(side) for side in sides.values()]
    assert named[1:] == ["vLLM 0.24.0", "SGLang 0.5.17"]
    assert named[0].startswith("glm-engine 0.")
    assert all(sorted(side.loads) == sorted(results.LOADS) for side in sides.values())


def test_the_faster_file_counts_for_each_batch_size(tmp_path):
    for name, rates in (("triton", {1: 154.0, 64: 1961.0}), ("cutlass", {1: 129.0, 64: 1962.0})):
        rows = [{"batch": batch, "decode_tok_s": rate} for batch, rate in rates.items()]
        file = tmp_path / f"vllm-decode-{name}.json"
        file.write_text(json.dumps({"vllm": "0.24.0", "rows": rows}))
    [side] = results.read(tmp_path).values()
    assert (side.version, side.decode) == ("0.24.0", {1: 154.0, 64: 1962.0})


def test_an_empty_folder_and_a_file_that_is_no_json_are_refused(tmp_path):
    with pytest.raises(PeerError, match="no file such as"):
        results.read(tmp_path)
    (tmp_path / "vllm-short.json").write_text("{")
    with pytest.raises(PeerError, match=r"vllm-short\.json: not JSON"):
        results.read(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--python", "trt=/bin/python"], "one of glm, vllm, sglang, got 'trt=/bin/python'"),
        (["--options", "glm"], "expected ENGINE=VALUE"),
        (["--batch", "1,0"], "expected numbers such as 1,8,64, got '1,0'"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path, words, said):
    done = CliRunner().invoke(main, [str(tmp_path), *words])
    assert done.exit_code == 2
    assert said in done.output


def test_one_command_measures_decode_and_loads_of_a_server(tmp_path, free_port, monkeypatch):
    short = {"rate": "inf", "requests": "2", "prompts": "fixed:8", "outputs": "fixed:4"}
    monkeypatch.setattr("tools.bench.peers.loads.LOADS", {"flood": short})
    given = ["--checkpoint", str(CAPITALS), "--engine", "glm", "--options", f"glm={OPTIONS}"]
    given += ["--batch", "1,2", "--port", str(free_port)]
    done = CliRunner().invoke(main, [str(tmp_path), *given])
    assert done.exit_code == 0, done.output + (tmp_path / "glm.log").read_text()
    side = results.read(tmp_path)["glm"]
    assert sorted(side.decode) == [1, 2]
    assert all(rate > 1 for rate in side.decode.values())
    [point] = side.loads["flood"]
    assert (point["num_completed"], point["output_tokens_per_second"] > 0) == (2, True)
    assert f"| {results.named(side)} |" in done.output


def test_a_server_that_ends_shows_its_log(tmp_path, free_port):
    place = Place(tmp_path / "absent", free_port)
    with (
        pytest.raises(PeerError, match=r"(?s)glm: the server is not ready; .*absent"),
        running("glm", place, tmp_path / "glm.log"),
    ):
        pytest.fail("it is not running")


def test_an_engine_that_is_not_installed_is_named():
    with pytest.raises(PeerError, match=r"(?s)sglang: .*failed: .*No module named"):
        version_of("sglang", Place(CAPITALS, 0))
    assert version_of("glm", Place(CAPITALS, 0))


def test_fewer_tokens_than_asked_and_a_refusal_are_no_figures(tmp_path, free_port):
    place = Place(CAPITALS, free_port, options=tuple(OPTIONS.split()))
    with running("glm", place, tmp_path / "glm.log") as url:
        with pytest.raises(PeerError, match=r"answered 400: .*context_length_exceeded"):
            Meter(url, 2000, 1).seconds(1, 4096)
        with (
            pytest.raises(PeerError, match="another server answers"),
            running("glm", place, tmp_path / "other.log"),
        ):
            pytest.fail("it is not running")


def test_commands_name_the_python_of_an_engine():
    place = Place(Path("/models/air"), 9000, "/opt/vllm/bin/python")
    words = place.words(SERVERS["vllm"].start)
    assert words[:2] == ["/opt/vllm/bin/python", "-m"]
    assert words[words.index("--model") + 1] == "/models/air"
    assert place.words(SERVERS["vllm"].version)[1:] == [
        "-c",
        "import vllm; print(vllm.__version__)",
    ]
    assert Place(Path("x"), 1).python == sys.executable


def test_the_checkpoint_has_the_tokenizer_that_clients_need(tmp_path, monkeypatch):
    config = tmp_path / "small.json"
    config.write_text(json.dumps(small_config(vocab_size=2500)))
    monkeypatch.setattr(checkpoint, "config_path", {"small": config}.get)
    folder = tmp_path / "air"
    checkpoint.write(folder, "small")
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert sorted(words.values()) == list(range(2500))
    assert {"config.json", *checkpoint.TEXTS} <= {path.name for path in folder.iterdir()}


def test_a_widened_tokenizer_has_a_token_for_every_id_and_spells_as_before(tmp_path):
    size, text = 4000, '{"city": "Paris"}'
    widened = checkpoint.widened(CAPITALS, size, tmp_path)
    before, after = GlmTokenizer(CAPITALS), GlmTokenizer(widened)
    assert after.decode(after.encode(text)) == text
    assert set(after.vocabulary().values()) == set(range(size))
    assert set(before.vocabulary().items()) <= set(after.vocabulary().items())
