"""Values of other engines' options, as ours take them. None leaves the default."""

import json
import re
from dataclasses import dataclass
from fractions import Fraction

COUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([kKmMgG])")
SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
SHARE = re.compile(r"[01]|[01]?\.\d{1,9}")
AUTOMATIC = ("auto", "-1")
SWITCHES = {"on": True, "off": False, "auto": None}


@dataclass(frozen=True)
class ShareOfAll:
    """A share of all memory that a device has, used or free; `text` is how a user states it."""

    share: Fraction
    text: str


def count(text: str) -> str | None:
    """Return a count; auto and -1 leave the default, 32k is 32000 and 32K is 32768."""
    if text in AUTOMATIC:
        return None
    found = COUNT.fullmatch(text)
    return str(int(Fraction(found[1]) * SCALES[found[2]])) if found else text


def share_of_all(text: str) -> ShareOfAll:
    return ShareOfAll(share(text), text)


def share_of_free(text: str) -> str:
    """Return a share in hundredths, rounded down: SGLang's, too, is one of free memory."""
    hundredths = int(100 * share(text))
    if hundredths == 0:
        raise ValueError(f"{text!r} is not a fraction from 0.01 to 1")
    return f"{hundredths / 100:.2f}"


def share(text: str) -> Fraction:
    if not SHARE.fullmatch(text) or not 0 < Fraction(text) <= 1:
        raise ValueError(f"{text!r} is not a fraction above 0 and up to 1, e.g. 0.9")
    return Fraction(text)


def expert_layout(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,3}", text):
        raise ValueError(f"{text!r} is not a valid number of GPUs")
    return "tensor_parallel" if text == "1" else "expert_parallel"


def texts(text: str) -> list[str]:
    """Return the texts of a JSON list, or those with commas between."""
    if not text.startswith("["):
        return [one.strip() for one in text.split(",") if one.strip()]
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise ValueError(f"{text!r} is not a JSON list of strings")
    return found


def switch(text: str) -> bool | None:
    if text not in SWITCHES:
        raise ValueError(f"{text!r} is not one of {', '.join(SWITCHES)}")
    return SWITCHES[text]
