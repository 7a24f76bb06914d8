"""What the tools of the benchmarks say to bad input: one line, and 2 as their status."""

from click.testing import CliRunner


def expect_refused(main, asked: list[str], said: str) -> None:
    """`main` with the arguments `asked` ends with 2 and says `said` somewhere."""
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 2
    assert said in result.output


def expect_one_line(main, asked: list[str], said: str) -> None:
    """As `expect_refused`, in one line that begins with the tool's name."""
    expect_refused(main, asked, said)
    result = CliRunner().invoke(main, asked)
    lines = result.output.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("tools.bench.")
