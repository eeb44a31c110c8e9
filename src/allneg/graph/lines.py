"""Lines of text → names: exact, in bounded memory, with file and line number in every error.

A regular block (three non-empty fields per line) is split as a whole. Any other block is read
line by line, which locates the error or skips what may be skipped.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, TypeAlias

import numpy as np

from allneg.errors import DataError, RecipeError, printable
from allneg.recipe import Data

Block: TypeAlias = tuple[list[str], list[str], list[str]]  # heads, relations, tails

_BLOCK = 1 << 22  # bytes per read
_LONGEST_LINE = 1 << 20  # bytes; bounds the memory
_BOM = b"\xef\xbb\xbf"
_COLUMN_NAMES = {
    "head": "h", "relation": "r", "tail": "t", "subject": "h", "predicate": "r", "object": "t",
    "h": "h", "r": "r", "t": "t", "source": "h", "type": "r", "target": "t",
    "from": "h", "rel": "r", "to": "t",
}  # fmt: skip
_NOTES = {
    "bom": "removed the byte order mark",
    "header": "skipped the first line, which names the columns",
    "blank": "skipped blank lines: {:,}",
    "bad": "skipped bad lines (data.skip_bad_lines): {:,} ({})",
    "returns": "kept carriage returns inside names: {:,}",
}
_TO_TEXT = "export the triples as tab-separated text"
_MAGIC = {
    b"\x1f\x8b": ("gzip", "rename it to end in .gz, or in .tar.gz for an archive"),
    b"\xfd7zXZ\x00": ("xz", "rename it to end in .xz, or in .tar.xz for an archive"),
    b"PK\x03\x04": ("a zip archive", "rename it to end in .zip"),
    b"BZh": ("bzip2", "decompress it first"),
    b"(\xb5/\xfd": ("zstandard", "decompress it first"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), ("UTF-16 text", "convert it to UTF-8")),
    b"PAR1": ("Parquet", _TO_TEXT),
    b"SQLite format 3": ("an SQLite database", _TO_TEXT),
    b"\x89HDF": ("HDF5", _TO_TEXT),
    b"\x89PNG": ("a picture", "choose a file of triples"),
    b"%PDF-": ("a PDF", "choose a file of triples"),
    b"\x7fELF": ("a program", "choose a file of triples"),
    **dict.fromkeys((b"\x80\x02", b"\x80\x04", b"\x80\x05"), ("a pickle", _TO_TEXT)),
}
N_TRIPLES = re.compile(r"\s*(<[^>]*>|_:\S+)\s+<[^>]*>\s.*\.\s*")
_SYNTAXES = {
    "N-Triples": N_TRIPLES,
    "Turtle": re.compile(r"\s*@?(prefix|base)\s.*", re.IGNORECASE),
    "XML": re.compile(r"\s*<(\?xml|!DOCTYPE|rdf:).*"),
    "JSON": re.compile(r"\s*[{\[].*"),
}


def read_lines(
    separator: str, stream: IO[bytes], where: str, settings: Data, notes: list[str]
) -> Iterator[Block]:
    """The names in a file of lines, block by block; `notes` gets what was changed.

    With tabs, every other byte belongs to a name: no quoting, no missing values, no numbers.
    With commas, a field may be quoted as in RFC 4180. A name never contains a tab, a line feed
    or a NUL.
    """
    _check_settings(settings)
    reader = _LineReader(separator, where, settings)
    heads, relations, tails = (settings.columns.index(letter) for letter in "hrt")
    for fields in reader.blocks(stream):
        yield fields[heads::3], fields[relations::3], fields[tails::3]
    reasons = [f"{reason}: {count:,}" for reason, count in reader.reasons.most_common()]
    for kind, text in _NOTES.items():
        if reader.counts[kind]:
            notes.append(f"{where}: {text.format(reader.counts[kind], ', '.join(reasons))}")


def split_line(line: str, separator: str) -> tuple[list[str], str | None]:
    """The fields of a line, and what is wrong with them, if anything."""
    if "\0" in line:
        return [], "found a NUL character (if this is UTF-16, convert it to UTF-8)"
    if separator == "," and '"' in line:
        try:
            fields = next(csv.reader([line], strict=True))
        except csv.Error as error:
            return [], f"found quotes that do not match ({error})"
    else:
        fields = line.split(separator)
    if len(fields) != 3:
        return fields, f"found {len(fields)} field{'' if len(fields) == 1 else 's'}"
    if separator == "," and "\t" in line:
        return fields, "found a tab inside a name"
    if "" in fields:
        return fields, f"found an empty {('first', 'second', 'third')[fields.index('')]} field"
    return fields, None


def _check_settings(settings: Data) -> None:
    if sorted(settings.columns) != sorted("hrt"):
        raise RecipeError("data.columns must be the letters h, r, t in some order, such as hrt")
    # An encoding must not interpret backslashes either, as unicode_escape does.
    samples = rb"\n\x41\u0041", bytes(range(128))
    try:
        keeps_ascii = all(text.decode(settings.encoding) == text.decode() for text in samples)
    except (LookupError, ValueError):  # ValueError: a NUL in the encoding's name
        keeps_ascii = False
    if not keeps_ascii:
        raise RecipeError(
            f"data.encoding: {printable(settings.encoding)} is unknown or not a superset of "
            "ASCII; convert the file to UTF-8"
        )


class _LineReader:
    """Reads one file. Keeps the position and counts what it changes."""

    def __init__(self, separator: str, where: str, settings: Data) -> None:
        self.separator, self.where, self.settings = separator, where, settings
        self.line = self.offset = 0  # lines and bytes before the current block
        self.counts: Counter[str] = Counter()  # keys of _NOTES
        self.reasons: Counter[str] = Counter()  # of bad lines that were skipped

    def blocks(self, stream: IO[bytes]) -> Iterator[list[str]]:
        """The fields of the file as flat lists, three fields per triple."""
        for block in _whole_lines(stream):
            if self.offset == 0:
                _refuse_binary(block, self.where)
                if block.startswith(_BOM):
                    self.counts["bom"], self.offset, block = 1, len(_BOM), block[len(_BOM) :]
            yield self._fields(block)
            self.line += block.count(b"\n")
            self.offset += len(block)

    def _fields(self, block: bytes) -> list[str]:
        data = block.replace(b"\r\n", b"\n") if b"\r" in block else block
        if not data.endswith(b"\n"):
            data += b"\n"
        self.counts["returns"] += data.count(b"\r")
        regular = _is_regular(data, self.separator)
        for number, line in enumerate(() if regular else data.split(b"\n"), self.line + 1):
            if len(line) > _LONGEST_LINE:
                raise DataError(
                    f"{self.where}:{number}: a line of more than {_LONGEST_LINE:,} bytes; "
                    "is this a file of triples?"
                )
        separator = self.separator
        try:
            text = data.decode(self.settings.encoding)
        except UnicodeDecodeError:
            fields = self._line_by_line(self._decoded_lines(data, block))
        else:
            fields = text.replace("\n", separator).split(separator)[:-1] if regular else []
            if len(fields) != 3 * data.count(b"\n"):
                fields = self._line_by_line(enumerate(text.split("\n")[:-1], self.line + 1))
        if self.line == 0 and N_TRIPLES.fullmatch("\t".join(fields[:3])):
            # With tabs, its lines have three fields, and the dot would become part of the tail.
            raise DataError(f"{self.where}: this is N-Triples; {_TO_TEXT}")
        if self.line == 0 and self._is_header(fields[:3]):
            self.counts["header"] = 1
            del fields[:3]
        return fields

    def _decoded_lines(self, data: bytes, block: bytes) -> Iterator[tuple[int, str]]:
        """The lines of `data` that can be decoded, with their numbers; the others are bad lines."""
        encoding, offset = self.settings.encoding, self.offset
        # `data` lacks the carriage returns of `block`, which count in the offset.
        pairs = zip(data.split(b"\n")[:-1], block.split(b"\n"), strict=False)
        for number, (line, raw) in enumerate(pairs, self.line + 1):
            try:
                yield number, line.decode(encoding)
            except UnicodeDecodeError as error:
                self._skip(
                    f"not {encoding}",
                    f"{self.where}:{number}: not {encoding} at byte {offset + error.start:,} "
                    f"(0x{line[error.start]:02x}); if the file has another encoding, set it, "
                    "for example by `--set data.encoding=latin-1`",
                )
            offset += len(raw) + 1

    def _line_by_line(self, lines: Iterable[tuple[int, str]]) -> list[str]:
        """The fields of numbered lines."""
        kept: list[str] = []
        for number, line in lines:
            if not line.strip(" "):
                self.counts["blank"] += 1
                continue
            fields, problem = split_line(line, self.separator)
            if problem is None:
                kept += fields
            else:
                self._skip(
                    problem,
                    f"{self.where}:{number}: expected head, relation, tail; {problem}: "
                    f"{printable(line)}; {_advice(line, self.separator)}",
                )
        return kept

    def _skip(self, reason: str, message: str) -> None:
        """Count a bad line, or raise an error if there are too many."""
        if (skipped := self.counts["bad"]) >= self.settings.skip_bad_lines:
            before = f" (bad lines skipped before: {skipped:,})" if skipped else ""
            raise DataError(message + before)
        self.counts["bad"] += 1
        self.reasons[reason] += 1

    def _is_header(self, fields: list[str]) -> bool:
        letters = "".join(_COLUMN_NAMES.get(name.strip().lower(), "?") for name in fields)
        if sorted(letters) != sorted("hrt"):
            return False
        if letters != self.settings.columns:
            raise DataError(
                f"{self.where}: the columns are called {', '.join(fields)}, but data.columns is "
                f"{self.settings.columns}; add `--set data.columns={letters}`"
            )
        return True


def _whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Blocks that end at a line end. The last block may be one overlong, incomplete line."""
    rest = b""
    while block := stream.read(_BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = b""
        rest += block[end:]
        if len(rest) > _LONGEST_LINE:
            break
    if rest:
        yield rest


def _is_regular(data: bytes, separator: str) -> bool:
    """Whether every line has three non-empty plain fields and a legal length."""
    codes = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((codes == ord(separator)) | (codes == ord("\n")))
    if len(ends) % 3 or b"\0" in data:
        return False
    if separator == "," and (b'"' in data or b"\t" in data):
        return False
    kinds = codes[ends].reshape(-1, 3)
    return bool(
        (kinds == [ord(separator), ord(separator), ord("\n")]).all()
        and (np.diff(ends, prepend=-1) > 1).all()
        and (np.diff(ends[2::3], prepend=-1) <= _LONGEST_LINE).all()
    )


def _refuse_binary(start: bytes, where: str) -> None:
    for magic, (kind, advice) in _MAGIC.items():
        if start.startswith(magic):
            raise DataError(f"{where}: this is {kind}, not text; {advice}")
    if start[257:262] == b"ustar":
        raise DataError(f"{where}: this is a tar archive; rename it to end in .tar")


def _advice(line: str, separator: str) -> str:
    """What to do about a bad line."""
    expected = "tabs" if separator == "\t" else "commas"
    for name, pattern in _SYNTAXES.items():
        if pattern.fullmatch(line):
            return f"this looks like {name}: {_TO_TEXT}"
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
    return "`--set data.skip_bad_lines=N` skips up to N bad lines per file"
