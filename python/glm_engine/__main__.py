from glm_engine.core.interrupts import let_interrupts_end, let_interrupts_raise


def run() -> int:
    """Run `glm` and return its exit code, with Ctrl-C heard before, meanwhile and after."""
    let_interrupts_end()
    from glm_engine.cli.command_line import main

    let_interrupts_raise()
    code = main()
    let_interrupts_end()
    return code


if __name__ == "__main__":
    raise SystemExit(run())
