"""The shapes that are measured: one device's share of the two models."""

from dataclasses import dataclass

HEAD_DIM = 128
ROTARY_DIM = 64
TOP_K = 8
PAGE_SIZE = 16
DECODE_TOKENS = (1, 16, 64, 256)
PRODUCT_TOKENS = (1, 16, 64, 128, 256)
EXPERT_TOKENS = (1, 16, 32, 64, 128, 256)
PREFILL_TOKENS = 8192
CONTEXTS = (1024, 4096)
DRAFTED_CONTEXT = 8192
BATCHES = (1, 16, 64)


@dataclass(frozen=True)
class Model:
    """What one device holds; num_experts is the number of the whole model."""

    name: str
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    intermediate_size: int
    moe_intermediate_size: int
    shared_intermediate_size: int
    num_experts: int
    num_local_experts: int
    local_vocab_size: int
    vocab_size: int

    @property
    def query_width(self) -> int:
        return self.num_heads * HEAD_DIM

    @property
    def qkv_width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * HEAD_DIM


MODELS = {
    "air": Model("GLM-4.5-Air", 4096, 96, 8, 10944, 1408, 1408, 128, 128, 151552, 151552),
    "rank8": Model("GLM-4.7, one of 8", 5120, 12, 1, 1536, 1536, 192, 160, 20, 18944, 151552),
}
