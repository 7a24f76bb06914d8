"""What `glm serve` may be told, and its bounds; seconds, bytes and counts are in the names.

The limits of a field stand beside the field, in `openai/` and `anthropic/`, those of a grammar in
`glm_engine.text.grammar.cost_limits`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

KIBIBYTE = 1024
MAX_PIPELINED = 16
MAX_HEADERS = 128
FREE_BODY_BYTES = 64 * KIBIBYTE


@dataclass(frozen=True)
class Settings:
    """What `glm serve` was told, and what it takes where it was told nothing."""

    host: str = "127.0.0.1"
    port: int = 8000
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    model_names: Sequence[str] = ("glm",)
    drain_seconds: float = 30.0
    request_seconds: float | None = None
    max_body_bytes: int = 32_768 * KIBIBYTE
    max_bodies_bytes: int = 262_144 * KIBIBYTE
    max_header_bytes: int = 64 * KIBIBYTE
    max_connections: int = 4096
    header_seconds: float = 15.0
    body_seconds: float = 60.0
    idle_seconds: int = 30
    stalled_write_seconds: float = 30.0
    keep_alive_comment_seconds: float = 2.0
    retry_after_seconds: int = 1
    max_choices: int = 256
    any_whitespace: bool = False
    strict_fields: bool = False
    template_variables: dict[str, Any] = field(default_factory=dict)
    scheduling_policy: str = "fcfs"
    max_json_depth: int = 64
    max_json_members: int = 65_536
    max_json_items: int = 2_097_152
    max_object_members: int = 4096
    inline_characters: int = 512
    long_characters: int = 65_536
    tokenizer_threads: int = 2
    grammar_wait_seconds: float = 10.0
    max_grammars_known: int = 4096
    max_grammars_relaxed: int = 256
    max_grammars_bytes: int = 262_144 * KIBIBYTE
    kv_events: str | None = None
    kv_events_replay: str | None = None
    kv_events_topic: str = ""
    log_level: str = "info"
    log_format: str = "auto"
    throughput_seconds: float = 10.0
