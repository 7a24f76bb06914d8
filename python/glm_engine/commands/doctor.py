"""`glm doctor`: checks that this machine has what running needs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from glm_engine.cli import options
from glm_engine.core.console import make_table, print_json, print_table, verdict
from glm_engine.core.errors import ExitCode

if TYPE_CHECKING:
    from glm_engine.core.diagnosis import Finding


@options.command("doctor")
@options.JSON
def command(as_json: bool) -> ExitCode:
    """Check the installation: packages, libraries, devices and, in a source checkout, build tools.

    Exits with 1 if anything needed to run is missing.
    """
    from glm_engine.core.diagnosis import diagnose

    findings = diagnose()
    missing = [one.name for one in findings if one.needed and not one.found]
    if as_json:
        rows = [one.as_dict() for one in findings]
        print_json({"findings": rows, "missing": missing, "passed": not missing})
    else:
        print_findings(findings, missing)
    return ExitCode.FAILED if missing else ExitCode.OK


def print_findings(findings: "Sequence[Finding]", missing: Sequence[str]) -> None:
    print_part("To run", [one for one in findings if not one.for_development])
    if others := [one for one in findings if one.for_development]:
        print_part("To develop", others)
    found = "Everything needed to run is here."
    print(verdict(f"Missing: {', '.join(missing)}." if missing else found, not missing))


def print_part(title: str, findings: "Sequence[Finding]") -> None:
    table = make_table(title, "status", "details", "source")
    for one in findings:
        table.add_row(one.name, one.state, one.detail, one.how)
    print_table(table)
    print()
