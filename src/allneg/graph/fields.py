"""One line → three fields, or what is wrong with it."""

from __future__ import annotations

import csv

from allneg.errors import printable

_LETTERS = {
    "head": "h", "relation": "r", "tail": "t", "subject": "h", "predicate": "r", "object": "t",
    "h": "h", "r": "r", "t": "t", "source": "h", "type": "r", "target": "t",
    "from": "h", "rel": "r", "to": "t",
}  # fmt: skip


def cut(line: str, separator: str) -> tuple[list[str], str | None]:
    """A line's fields, and what is wrong with them if something is."""
    if separator == "," and '"' in line:
        try:
            fields = next(csv.reader([line], strict=True))
        except csv.Error as error:
            return [], f"found quotes that do not match ({error})"
        if any("\t" in name for name in fields):
            return fields, "found a tab inside a name"
    else:
        fields = line.split(separator)
    if len(fields) != 3:
        return fields, f"found {len(fields)} field{'' if len(fields) == 1 else 's'}"
    if "" in fields:
        return fields, f"found an empty {('first', 'second', 'third')[fields.index('')]} field"
    return fields, None


def header(fields: list[str]) -> str | None:
    """The order of columns, such as `hrt`, that a line of column names gives; None for a triple."""
    letters = "".join(_LETTERS.get(name.strip().lower(), "?") for name in fields)
    return letters if sorted(letters) == sorted("hrt") else None


def complaint(number: int, line: str, separator: str, wrong: str) -> str:
    """What to say of a bad line: what was expected, what was found, what to do."""
    if number == 1 and line.strip().isdecimal():
        return (
            f"the file begins with a count, {printable(line)}; take that line out, "
            "and say data.columns: in such files it is often htr"
        )
    return f"expected head, relation, tail; {wrong}: {printable(line)}; {_advice(line, separator)}"


def _advice(line: str, separator: str) -> str:
    if separator == "," and line.count("\t") == 2:
        return "the fields are separated by tabs: call the file .tsv"
    if separator == "\t" and line.count(",") == 2 and "\t" not in line:
        return "the fields are separated by commas: call the file .csv"
    if separator not in line:
        right = {"\t": "tabs", ",": "commas"}[separator]
        if line.startswith("#"):
            return "comments are not read: take them out"
        if line.count(";") == 2:
            return f"the fields are separated by semicolons: put {right} between them"
        if len(line.split()) == 3:
            return f"the fields are separated by spaces: put {right} between them"
    if "\r" in line:
        return "the line has carriage returns in it: end lines with line feeds"
    return "data.skip_bad_lines=N leaves out up to N such lines a file"
