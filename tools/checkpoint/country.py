"""What the training text says about a country."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Country:
    """One country or territory with a capital of its own."""

    iso_code: str
    name: str
    capital: str
    continent: str
    currency: str
    internet_domain: str
