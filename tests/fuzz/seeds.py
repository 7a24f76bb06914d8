"""The hand-made seeds of the harnesses: sound inputs and each kind of unsound one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from glm_engine.core.layout import CONFIGS

BF16_CONFIGS = Path(__file__).resolve().parents[1] / "data" / "configs"
DEPTH = 10_000

Seed = tuple[str, bytes]


def entry(dtype: object, shape: object, begin: object, end: object) -> dict:
    """What a header says of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def header_objects() -> dict[str, object]:
    """Header documents over 24 bytes of data, by name."""
    sound = {"a": entry("F32", [2, 2], 0, 16), "b": entry("F8_E4M3", [8], 16, 24)}
    return {
        "sound": {"__metadata__": {"format": "pt"}, **sound},
        "scalar": {"a": entry("F64", [], 0, 8), "b": entry("BF16", [8], 8, 24)},
        "empty-tensor": {"e": entry("F32", [0, 5], 0, 0), **sound},
        "overlap": {"a": entry("F32", [4], 0, 16), "b": entry("F32", [4], 8, 24)},
        "backwards": {"a": entry("F32", [4], 16, 0)},
        "past-the-end": {"a": entry("F32", [8], 0, 32)},
        "gap": {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 16, 24)},
        "tail": {"a": entry("F32", [4], 0, 16)},
        "unaligned": {"a": entry("F8_E4M3", [1], 0, 1), "b": entry("F32", [5], 1, 21)},
        "dtype": {"a": entry("F7", [4], 0, 16)},
        "dtype-number": {"a": entry(7, [4], 0, 16)},
        "shape-negative": {"a": entry("F32", [-4], 0, 16)},
        "shape-huge": {"a": entry("F32", [2**40, 2**40], 0, 16)},
        "shape-deep": {"a": entry("F32", [1] * 9, 0, 4)},
        "shape-real": {"a": entry("F32", [4.5], 0, 18)},
        "offsets-huge": {"a": entry("F32", [4], 2**62, 2**63)},
        "offsets-missing": {"a": {"dtype": "F32", "shape": [4]}},
        "list": [1, 2, 3],
        "nul-name": {"a\u0000b": entry("F32", [6], 0, 24)},
        "emoji-name": {"\U0001f5fc": entry("F32", [6], 0, 24)},
        "escape-name": {"\x1b[2J": entry("F32", [6], 0, 24)},
        "metadata-null": {"__metadata__": None, **sound},
        "metadata-number": {"__metadata__": {"step": 3}, **sound},
        "metadata-list": {"__metadata__": [], **sound},
    }


TEXTS = {
    "deep": b"[" * DEPTH + b"]" * DEPTH,
    "no-json": b"\x80\x04\x95 pickled",
    "empty": b"",
    "duplicate": b'{"a":1,"a":2}',
    "lone-surrogate": b'{"\\ud800":1}',
    "wrong-utf8": b'{"\xc3\x28":1}',
    "long-utf8": b'{"\xf0\x82\x82\xac":1}',
    "long-number": b"[" + b"9" * 300 + b"]",
    "exponent": b"[1e400,-0.0e-400,1E+2]",
    "control": b'{"a\n":1}',
}


def json_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def padded(text: bytes) -> bytes:
    """Header text with the spaces that align the data after it."""
    return text + b" " * (-len(text) % 8)


def header_seeds() -> Iterator[Seed]:
    data_size = (24).to_bytes(2, "little")
    for name, value in header_objects().items():
        yield name, data_size + padded(json_bytes(value))
    yield "deep-objects", data_size + b'{"a":' * DEPTH
    yield "odd-length", data_size + padded(json_bytes(header_objects()["sound"])) + b" "
    for name, text in TEXTS.items():
        yield name, data_size + text


def shard_seeds() -> Iterator[Seed]:
    text = padded(json_bytes(header_objects()["sound"]))
    whole = len(text).to_bytes(8, "little") + text + bytes(24)
    yield "sound", whole
    yield "truncated", whole[:-5]
    yield "header-cut", whole[:40]
    yield "short", whole[:7]
    yield "too-long", (2**63).to_bytes(8, "little") + whole[8:]
    yield "longer-than-file", (len(whole)).to_bytes(8, "little") + whole[8:]
    yield "zero-length", bytes(8) + whole[8:]


def index_seeds() -> Iterator[Seed]:
    maps = {
        "sound": {"a.weight": "model-00001-of-00002.safetensors", "b": "model-00002.safetensors"},
        "parent": {"a": "../model.safetensors"},
        "absolute": {"a": "/etc/passwd"},
        "number": {"a": 1},
        "empty-name": {"a": ""},
        "no-tensors": {},
        "escape-file": {"a": "\x1b[2J"},
        "escape-name": {"\x1b[2J": ".."},
    }
    for name, weight_map in maps.items():
        yield name, json_bytes({"metadata": {"total_size": 24}, "weight_map": weight_map})
    yield "no-map", json_bytes({"metadata": {}})
    yield "list", json_bytes({"weight_map": []})
    yield from TEXTS.items()


ROTATIONS = (
    ("rope-inner-theta", "rope_scaling", {"rope_type": "default", "rope_theta": 1e4}),
    ("rope-linear", "rope_parameters", {"type": "linear", "factor": 4}),
    ("rope-nested", "rope_parameters", {"full_attention": {"rope_type": "default"}}),
    ("rope-empty", "rope_scaling", {}),
)


def size_name(value: object) -> str:
    """`small`, `large`, `negative` or `empty`, for the names of seeds."""
    if not isinstance(value, (int, float)):
        return "empty" if not value else "small"
    return "negative" if value < 0 else "large" if value > 100 else "small"


def config_seeds() -> Iterator[Seed]:
    for path in (*CONFIGS.glob("*.json"), *BF16_CONFIGS.glob("*.json")):
        yield path.stem, json_bytes(json.loads(path.read_text(encoding="utf-8")))
    config = json.loads((CONFIGS / "glm-4.7-fp8.json").read_text("utf-8"))
    rope = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}
    yield "rope-parameters", json_bytes({**config, "rope_parameters": rope, "rope_theta": None})
    for name, key, inner in ROTATIONS:
        yield name, json_bytes({**config, key: inner})
    for key in ("hidden_size", "num_key_value_heads", "rms_norm_eps", "eos_token_id"):
        for value in (0, -1, 2**40, 1e300, "8", None, [], {}):
            kind = type(value).__name__
            yield f"{key}-{kind}-{size_name(value)}", json_bytes({**config, key: value})
    yield from TEXTS.items()


def pattern_seeds() -> Iterator[Seed]:
    pairs = [
        (r".*\.mlp\.gate$", "model.layers.3.mlp.gate"),
        (r"model\.layers\.\d+\.(?:self_attn|mlp)\.[a-z_]+", "model.layers.11.self_attn.q_proj"),
        (r"(a*)*b", "a" * 64),
        (r"(a|b){2,3}?c$", "abac"),
        (r"[^\w.]|[]a-c]+", "]a"),
        (r"a{255}{255}", "a"),
        (r"(((((a{9}){9}){9}){9}){9}", "a"),
        (r"(?=a)b", "ab"),
        (r"[z-a", "z"),
        (r"\q", "q"),
        ("(" * 100, "a"),
    ]
    for number, (pattern, text) in enumerate(pairs):
        yield f"pattern-{number:02d}", pattern.encode() + b"\0" + text.encode()


HARNESSES: dict[str, Callable[[], Iterator[Seed]]] = {
    "config": config_seeds,
    "header": header_seeds,
    "index": index_seeds,
    "pattern": pattern_seeds,
    "shard": shard_seeds,
}
