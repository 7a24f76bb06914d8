"""`glm doctor`: what this machine has, where it was found, and what is missing."""

from glm_engine import options
from glm_engine.console import make_table, print_json, print_table
from glm_engine.errors import ExitCode


@options.command("doctor")
@options.JSON
def command(as_json):
    """Show the toolchain, devices and libraries found, and how.

    Exits with 1 when something that running needs is missing.
    """
    from glm_engine.diagnosis import diagnose

    findings = diagnose()
    missing = [one.name for one in findings if one.needed and not one.found]
    if as_json:
        rows = [one.as_dict() for one in findings]
        print_json({"findings": rows, "missing": missing, "passed": not missing})
    else:
        print_findings(findings, missing)
    return ExitCode.FAILED if missing else ExitCode.OK


def print_findings(findings, missing):
    table = make_table("", "state", "what", "how")
    for one in findings:
        table.add_row(one.name, one.state, one.detail, one.how)
    print_table(table)
    print()
    print(f"missing: {', '.join(missing)}" if missing else "all that running needs is here")
