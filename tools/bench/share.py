"""`python -m tools.bench.share`: the `config.json` of one rank's share of a model.

A rank of W that splits experts by width holds a W-th of the heads, of the widths and of the
vocabulary, and all layers. A model of these sizes, on one GPU, computes what such a rank computes;
exchanges between ranks are not part of it. `glm bench --synthetic SHARE` times it.
"""

import json
from pathlib import Path

import click

from glm_engine.bench.costs import SYNTHETIC, config_path
from glm_engine.errors import BadInputError
from glm_engine.files import prepare_target, write_report
from tools.bench.mixed import AIR
from tools.bench.one_line import errors_in_one_line

SPLIT = (
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "vocab_size",
)
TOKENS_OF_THE_WHOLE = ("bos_token_id", "eos_token_id", "pad_token_id")
WORLD_SIZES = ("2", "4", "8")


def share_of(config: dict, world_size: int) -> dict:
    """`config` with every size that ranks split divided by `world_size`.

    Raises `BadInputError` for a size that is no multiple of it, and without `head_dim`, which would
    follow from the number of heads.
    """
    share = {key: value for key, value in config.items() if key not in TOKENS_OF_THE_WHOLE}
    if type(config.get("head_dim")) is not int:
        raise BadInputError(f"head_dim: expected a number, got {config.get('head_dim')!r}")
    for key in SPLIT:
        size = config.get(key)
        if type(size) is not int or size < 1 or size % world_size:
            raise BadInputError(f"{key}: expected a multiple of {world_size}, got {size!r}")
        share[key] = size // world_size
    return share


@click.command()
@click.option("--synthetic", "model", default=AIR, show_default=True, help=", ".join(SYNTHETIC))
@click.option("--world-size", type=click.Choice(WORLD_SIZES), default="2", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), required=True)
def main(model, world_size, output) -> None:
    """Writes the config.json of what one rank of WORLD_SIZE computes."""
    with errors_in_one_line("tools.bench.share"):
        config = json.loads(config_path(model).read_text())
        write_report(share_of(config, int(world_size)), prepare_target(output))


if __name__ == "__main__":
    main()
