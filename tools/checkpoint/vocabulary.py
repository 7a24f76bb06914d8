"""A byte-level BPE tokenizer of GLM's kind with its special tokens at the end of the vocabulary."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.checkpoint.shards import write_json

SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL_TOKENS = (
    "<|endoftext|>",
    "[MASK]",
    "[gMASK]",
    "[sMASK]",
    "<sop>",
    "<eop>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
)
WRITTEN_TOKENS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "/nothink",
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """A tokenizer of exactly vocab_size entries; refuses texts too small to fill it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(CONTROL_TOKENS) - len(WRITTEN_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=1,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([_added(text, True) for text in CONTROL_TOKENS])
    tokenizer.add_tokens([_added(text, False) for text in WRITTEN_TOKENS])
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(
            f"the vocabulary should have {vocab_size} entries but the texts give "
            f"{tokenizer.get_vocab_size()}"
        )
    return tokenizer


def _added(text: str, special: bool) -> AddedToken:
    return AddedToken(text, special=special, normalized=False)


def write_tokenizer(tokenizer: Tokenizer, folder: Path, max_position_embeddings: int) -> None:
    """tokenizer.json and tokenizer_config.json, loadable by transformers 4 and 5."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(text)): _described(text, text in CONTROL_TOKENS)
            for text in (*CONTROL_TOKENS, *WRITTEN_TOKENS)
        },
        "additional_special_tokens": list(CONTROL_TOKENS),
        "clean_up_tokenization_spaces": False,
        "do_lower_case": False,
        "eos_token": "<|endoftext|>",
        "model_max_length": max_position_embeddings,
        "pad_token": "<|endoftext|>",
        "padding_side": "left",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    write_json(folder / "tokenizer_config.json", config)


def _described(text: str, special: bool) -> dict[str, object]:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    return {"content": text, **flags, "special": special}
