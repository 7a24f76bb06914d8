from tests.shapes import seed_note


def pytest_report_header(config) -> str:
    return f"shapes and data: {seed_note()}"
