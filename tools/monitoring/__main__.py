"""`python -m tools.monitoring`: write the dashboard's JSON from its tables."""

import click

from tools.monitoring.dashboard import PATH, text


@click.command()
def main() -> None:
    """Write the dashboard's JSON from its tables."""
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m tools.monitoring")
