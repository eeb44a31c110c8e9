"""What is wrong with a file that is not lines of triples, and what to do about it."""

import re

from allneg.errors import DataError

_TO_TEXT = "export the triples as tab-separated text"
_MAGIC = {
    b"\x1f\x8b": ("gzip", "rename it to end in .gz, or in .tar.gz for an archive"),
    b"\xfd7zXZ\x00": ("xz", "rename it to end in .xz, or in .tar.xz for an archive"),
    b"PK\x03\x04": ("a zip archive", "rename it to end in .zip, or save a spreadsheet as .csv"),
    b"BZh": ("bzip2", "decompress it first"),
    b"(\xb5/\xfd": ("zstandard", "decompress it first"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("UTF-16 text", "convert it to UTF-8")),
    b"PAR1": ("Parquet", "rename it to end in .parquet"),
    b"SQLite format 3": ("an SQLite database", _TO_TEXT),
    b"\x89HDF": ("HDF5", _TO_TEXT),
    b"\x89PNG": ("a picture", "choose a file of triples"),
    b"%PDF-": ("a PDF", "choose a file of triples"),
    b"\x7fELF": ("a program", "choose a file of triples"),
    **dict.fromkeys((b"\x80\x02", b"\x80\x04", b"\x80\x05"), ("a pickle", _TO_TEXT)),
}
N_TRIPLES = re.compile(r"\s*(<[^>]*>|_:\S+)\s+<[^>]*>\s.*\.\s*")
SKIP = "`--set data.skip_bad_lines=N` skips up to N bad lines per file"
_SYNTAXES = {
    ("N-Triples", ".nt"): N_TRIPLES,
    ("Turtle", ".ttl"): re.compile(r"\s*@?(prefix|base)\s.*", re.IGNORECASE),
    ("XML", ".rdf"): re.compile(r"\s*<(\?xml|!DOCTYPE|rdf:).*"),
    ("JSON", ".jsonl"): re.compile(r"\s*\{.*"),
}


def refuse_binary(start: bytes, where: str) -> None:
    """Raise a `DataError` if the first bytes of a file are not those of text."""
    for magic, (kind, advice) in _MAGIC.items():
        if start.startswith(magic):
            raise DataError(f"{where}: this is {kind}, not text; {advice}")
    if start[257:262] == b"ustar":
        raise DataError(f"{where}: this is a tar archive; rename it to end in .tar")


def advice_on(line: str, separator: str, number: int) -> str:
    """What to do about a bad line."""
    expected = "tabs" if separator == "\t" else "commas"
    for (name, suffix), pattern in _SYNTAXES.items():
        if pattern.fullmatch(line):
            return f"this looks like {name}: rename the file to end in {suffix}"
    if line.lstrip().startswith("["):
        return "this looks like a JSON list: write an object per line to a file that ends in .jsonl"
    if separator == "," and line.count("\t") == 2:
        return "the fields are separated by tabs: rename the file to .tsv"
    if separator == "\t" and line.count(",") == 2 and "\t" not in line:
        return "the fields are separated by commas: rename the file to .csv"
    if separator not in line:
        if line.strip().isdecimal():
            return "if it is a count, remove it; such files often need `--set data.columns=htr`"
        if line.startswith("#"):
            return "comments are not supported: remove them"
        if line.count(";") == 2:
            return f"the fields are separated by semicolons: use {expected}"
        if len(line.split()) == 3:
            return f"the fields are separated by spaces: use {expected}"
    if "\r" in line:
        return "the line contains carriage returns: end lines with line feeds"
    if number == 1 and line.count(separator) > 2:
        return "if it names columns, choose three by `--set data.columns=HEAD,RELATION,TAIL`"
    return SKIP
