"""`python -m tools.bench.cuda FOLDERS`: the page, its pictures and files, sections of READMEs."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tools.bench import machine
from tools.bench.cuda import asked, page, pictures, readmes, results
from tools.bench.kernels import report as kernel_report
from tools.bench.processes import ROOT

NAME = "h200"
REPLACED = (".json", ".png", ".svg")
FOLDER = ROOT / "docs" / "benchmarks"
SECTIONS = {"native/README.md": readmes.of_kernels}


def write_files(folder: Path, name: str, files: dict[str, dict]) -> list[str]:
    """The measured files under the page's name; those of the run before and its pictures go.
    Returns the names."""
    for suffix in REPLACED:
        for old in folder.glob(f"{name}-*{suffix}"):
            old.unlink()
    written = []
    for file, content in files.items():
        written.append(f"{name}-{file}")
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (folder / written[-1]).write_text(text, encoding="utf-8")
    return written


def write_kernels(folder: Path, name: str, kernels: results.Kernels) -> None:
    described = kernel_report.Described(kernels.command, kernels.machine, kernels.ceilings)
    text = kernel_report.markdown(described, kernels.lines)
    (folder / f"{name}-kernels.md").write_text(text, encoding="utf-8")


def write_page(folder: Path, name: str, commit: str, folders: list[Path]) -> page.Page:
    """Everything in the folder of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    measured, files = results.read(folders)
    names = write_files(folder, name, files)
    has_bounds = (folder / f"{name}-bounds.md").exists()
    made = page.Page(name, commit, names, measured, asked.figures(measured), has_bounds)
    (folder / f"{name}.md").write_text(page.text(made), encoding="utf-8")
    if measured.kernels is not None:
        write_kernels(folder, name, measured.kernels)
    pictures.draw(measured, folder, name)
    return made


def write_readmes(made: page.Page) -> None:
    """Sections for which something was measured."""
    for path, section in SECTIONS.items():
        body = section(made, "../" * path.count("/") + "docs/benchmarks")
        if body:
            readmes.write(ROOT / path, body)
        else:
            click.echo(f"{path}: no new figures for it; left unchanged", err=True)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--commit", help="Commit that was measured [default: the checked-out commit].")
@click.option("--name", default=NAME, show_default=True, help="Prefix of the file names.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to write to [default: docs/benchmarks].",
)
@click.option(
    "--readmes", "with_readmes", is_flag=True, help="Also update the figures in the READMEs."
)
def main(
    folders: Sequence[Path], commit: str | None, name: str, output: Path | None, with_readmes: bool
) -> None:
    """Make the page of a GPU from air-*.json, loading-*.json and kernels.json in FOLDERS."""
    if not machine.is_installed("matplotlib"):
        raise click.ClickException(
            "not installed: matplotlib; run with `tools/develop --with oracle`"
        )
    sys.path.insert(0, str(ROOT / "python"))
    try:
        made = write_page(output or FOLDER, name, commit or machine.commit(), list(folders))
        if with_readmes:
            write_readmes(made)
    except results.ResultsError as error:
        raise click.ClickException(str(error)) from error
    missed = [figure for figure in made.figures if not figure.is_kept]
    for figure in missed:
        click.echo(f"missed: {figure.name}: {figure.value:.4g} {figure.unit}")
    click.echo(f"{len(made.figures) - len(missed)} of {len(made.figures)} limits are kept")


if __name__ == "__main__":
    main()
