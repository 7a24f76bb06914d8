"""`python -m tools.bench.share`: the `config.json` of a few ranks' shares of a model.

A rank of W holds a W-th of the heads, of the widths and of the vocabulary, and all layers; of the
experts a W-th of their width, or a W-th of them, of which a token then chooses as many fewer; the
shared one is then an R-th wide, where a rank of W has a W-th: no config.json can say that.
A model of the sizes that R such ranks hold, on R GPUs, computes what each of them computes of W.
Exchanges with the other W - R ranks, and waiting for them, are not part of it.
`glm bench --synthetic SHARE --world-size R` times it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from glm_engine.bench.costs import config_path
from glm_engine.core.errors import BadInputError
from glm_engine.core.files import prepare_target, read_object, write_report
from tools.bench import command

SPLIT = ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size")
SPLIT_OF_EXPERTS = {
    "tensor_parallel": ("moe_intermediate_size",),
    "expert_parallel": ("n_routed_experts", "num_experts_per_tok"),
}
TOKENS_OF_THE_WHOLE = ("bos_token_id", "eos_token_id", "pad_token_id")
WORLD_SIZES = ("2", "4", "8")
RANKS = ("1", "2", "4")


def share_of(config: Mapping[str, Any], parts: int, layout: str) -> dict[str, Any]:
    """`config` with every size that ranks split divided by `parts`.

    Raises `BadInputError` for a size that is no multiple of it, and without `head_dim`, which would
    follow from the number of heads.
    """
    share = {key: value for key, value in config.items() if key not in TOKENS_OF_THE_WHOLE}
    if type(config.get("head_dim")) is not int:
        raise BadInputError(f"head_dim: expected a number, got {config.get('head_dim')!r}")
    for key in SPLIT + SPLIT_OF_EXPERTS[layout]:
        size = config.get(key)
        if type(size) is not int or size < 1 or size % parts:
            raise BadInputError(f"{key}: expected a multiple of {parts}, got {size!r}")
        share[key] = size // parts
    return share


def parts_of(world_size: int, ranks: int) -> int:
    """How many times `ranks` ranks there are; raises `BadInputError` unless they are a part."""
    if ranks >= world_size:
        raise BadInputError(f"--ranks: expected fewer than --world-size {world_size}, got {ranks}")
    return world_size // ranks


@click.command()
@command.model
@click.option("--world-size", type=click.Choice(WORLD_SIZES), default="2", show_default=True)
@click.option(
    "--ranks",
    type=click.Choice(RANKS),
    default="1",
    show_default=True,
    help="Number of ranks whose shares the model holds; run it with this world size.",
)
@click.option(
    "--expert-layout",
    "layout",
    type=click.Choice(sorted(SPLIT_OF_EXPERTS)),
    default="tensor_parallel",
    show_default=True,
)
@click.option("--output", type=click.Path(path_type=Path), required=True)
def main(model: str, world_size: str, ranks: str, layout: str, output: Path) -> None:
    """Writes the config.json of what RANKS ranks of WORLD_SIZE compute."""
    with command.errors_in_one_line("tools.bench.share"):
        parts = parts_of(int(world_size), int(ranks))
        config = read_object(config_path(model))
        write_report(share_of(config, parts, layout), prepare_target(output))


if __name__ == "__main__":
    main()
