"""`python -m tools.monitoring`: write the dashboard's JSON from its tables."""

from tools.monitoring.dashboard import PATH, text

if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text(), encoding="utf-8")
