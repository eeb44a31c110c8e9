"""Lines of text → names: exact, in bounded memory, with file and line number in every error.

A regular block (the same number of non-empty fields per line) is split as a whole. Any other block
is read line by line, which locates the error or skips what may be skipped.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np

from allneg.errors import DataError, RecipeError, printable
from allneg.graph.advice import N_TRIPLES, advice_on, refuse_binary
from allneg.graph.blocks import (
    ORDINALS,
    BadRows,
    Block,
    Column,
    Fields,
    Found,
    Layout,
    as_list,
    as_weights,
    find_layout,
    layout_of_letters,
    need_layout,
    note_weights,
    weight_problem,
)
from allneg.recipe import Data
from allneg.recipe.parts import columns_mistake

_USUAL = Layout(0, 1, 2)
_BLOCK = 1 << 22  # bytes per read
_LONGEST_LINE = 1 << 20  # bytes; bounds the memory
_FEWEST_LINES = 10  # for judging whether the first line is a header
_BOM = b"\xef\xbb\xbf"
_NOTES = {
    "bom": "removed the byte order mark",
    "header": "skipped the first line, which names the columns",
    "blank": "skipped blank lines: {:,}",
    "returns": "kept carriage returns inside names: {:,}",
}


def read_lines(
    separator: str, stream: IO[bytes], where: str, settings: Data, found: Found
) -> Iterator[Block]:
    """The names in a file of lines, block by block; `found` gets what was changed.

    With tabs, every other byte belongs to a name: no quoting, no missing values, no numbers.
    With commas, a field may be quoted as in RFC 4180. A name never contains a tab, a line feed
    or a NUL.
    """
    check_settings(settings)
    reader = _LineReader(separator, where, settings, found)
    for fields in reader.blocks(stream):
        columns = [
            Column(fields, i) if isinstance(fields, Fields) else fields[i :: reader.width]
            for i in reader.layout
            if i is not None
        ]
        weights = as_weights(as_list(columns[3])) if len(columns) > 3 else None
        yield Block(columns[0], columns[1], columns[2], weights)
    for kind, text in _NOTES.items():
        if reader.counts[kind]:
            found.notes.append(f"{where}: {text.format(reader.counts[kind])}")
    reader.bad.note(where, found)


def split_line(
    line: str, separator: str, width: int = 3, layout: Layout = _USUAL
) -> tuple[list[str], str | None]:
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
    if len(fields) != width:
        return fields, f"found {len(fields)} field{'' if len(fields) == 1 else 's'}"
    if separator == "," and "\t" in line:
        return fields, "found a tab inside a name"
    for column in sorted(layout[:3]):
        if not fields[column]:
            ordinal = ORDINALS[column] if column < 3 else f"{column + 1}th"
            return fields, f"found an empty {ordinal} field"
    return fields, None if layout.weights is None else weight_problem(fields[layout.weights])


def check_settings(settings: Data) -> None:
    """Raise a `RecipeError` if the settings of reading are not valid."""
    if mistake := columns_mistake(settings.columns):
        raise RecipeError(mistake)
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

    def __init__(self, separator: str, where: str, settings: Data, found: Found) -> None:
        self.separator, self.where, self.settings, self.found = separator, where, settings, found
        self.line = self.offset = 0  # lines and bytes before the current block
        self.counts: Counter[str] = Counter()  # keys of _NOTES
        self.bad = BadRows(settings)
        letters = settings.columns if "," not in settings.columns else "hrt"
        self.layout, self.width = layout_of_letters(letters), len(letters)
        self.is_checked = False  # whether the first triple was looked at

    def blocks(self, stream: IO[bytes]) -> Iterator[Fields | list[str]]:
        """The fields of the file, `width` per triple; those of irregular lines as flat lists."""
        for block in whole_lines(stream):
            if self.offset == 0:
                refuse_binary(block, self.where)
                if block.startswith(_BOM):
                    self.counts["bom"], self.offset, block = 1, len(_BOM), block[len(_BOM) :]
                block = self._without_header(block)
            if block:
                yield self._fields(block)
                self.line += block.count(b"\n")
                self.offset += len(block)

    def _without_header(self, block: bytes) -> bytes:
        """The lines after the names of columns, if the first line has them."""
        line, end, rest = block.partition(b"\n")
        settings = self.settings
        text = line.removesuffix(b"\r").decode(settings.encoding, "replace")
        if settings.header is False or len(line) > _LONGEST_LINE:
            return block
        names, _ = split_line(text, self.separator)
        layout = find_layout(names, self.where, settings)
        if layout is None and settings.header:
            layout = need_layout(names, self.found, self.where, settings)
        elif layout is not None:
            note_weights(names, layout, self.found, self.where)
        elif self._is_unlike(names, rest):
            self.found.notes.append(
                f"{self.where}: the first line looks like names of columns ({text!r}), since they "
                "occur nowhere else; if it is a triple, add `--set data.header=false`"
            )
            layout = self.layout
        if layout is None:
            return block
        self.layout, self.width, self.counts["header"] = layout, len(names), 1
        self.line, self.offset = 1, self.offset + len(line) + len(end)
        return rest

    def _is_unlike(self, names: list[str], rest: bytes) -> bool:
        """Whether the first line has names that no line of its block has."""
        if len(names) != self.width or len(set(names)) != self.width:
            return False
        if any(self._has_field(name, rest) for name in names):  # quicker than all fields
            return False
        lines = rest.decode(self.settings.encoding, "replace").split("\n")
        rows = [row for line in lines if len(row := line.split(self.separator)) == self.width]
        relations = {row[self.layout.relations] for row in rows}
        # A relation per line tells nothing about the first one.
        if len(rows) < _FEWEST_LINES or 3 * len(relations) > len(rows):
            return False
        return not set(names) & {field for row in rows for field in row}

    def _has_field(self, name: str, rest: bytes) -> bool:
        """Whether the first line that begins or continues with this field has `width` fields."""
        field = name.encode(self.settings.encoding, "backslashreplace")
        separator = self.separator.encode()
        for before in (b"\n", separator):
            position = rest.find(before + field + separator)
            if position >= 0:
                end = rest.find(b"\n", position + 1)
                line = rest[rest.rfind(b"\n", 0, position + 1) + 1 : end]
                return end >= 0 and line.count(separator) == self.width - 1
        return False

    def _fields(self, block: bytes) -> Fields | list[str]:
        data = block.replace(b"\r\n", b"\n") if b"\r" in block else block
        if not data.endswith(b"\n"):
            data += b"\n"
        self.counts["returns"] += data.count(b"\r")
        regular = _is_regular(data, self.separator, self.width)
        for number, line in enumerate(() if regular else data.split(b"\n"), self.line + 1):
            if len(line) > _LONGEST_LINE:
                raise DataError(
                    f"{self.where}:{number}: a line of more than {_LONGEST_LINE:,} bytes; "
                    "is this a file of triples?"
                )
        try:
            text = data.decode(self.settings.encoding)
        except UnicodeDecodeError:
            fields = self._line_by_line(self._decoded_lines(data, block))
        else:
            if self.settings.encoding != "utf-8":
                data = text.encode(errors="surrogatepass")
            found = Fields(data, self.separator, self.width)
            if regular and self._has_weights(found):
                self._check_first(found.data.partition(b"\n")[0].decode())
                return found
            fields = self._line_by_line(enumerate(text.split("\n")[:-1], self.line + 1))
        self._check_first("\t".join(fields[:3]))
        return fields

    def _check_first(self, line: str) -> None:
        """Raise a `DataError` if the first triple is N-Triples.

        With tabs, its lines have three fields, and the dot would become part of the tail.
        """
        if not self.is_checked and N_TRIPLES.fullmatch(line):
            raise DataError(f"{self.where}: this is N-Triples; rename the file to end in .nt")
        self.is_checked = self.is_checked or bool(line)

    def _has_weights(self, fields: Fields) -> bool:
        """Whether all weights, if there is a column of them, are numbers above 0."""
        column = self.layout.weights
        return column is None or as_weights(as_list(Column(fields, column))) is not None

    def _decoded_lines(self, data: bytes, block: bytes) -> Iterator[tuple[int, str]]:
        """The lines of `data` that can be decoded, with their numbers; the others are bad lines."""
        encoding, offset = self.settings.encoding, self.offset
        # `data` lacks the carriage returns of `block`, which count in the offset.
        pairs = zip(data.split(b"\n")[:-1], block.split(b"\n"), strict=False)
        for number, (line, raw) in enumerate(pairs, self.line + 1):
            try:
                yield number, line.decode(encoding)
            except UnicodeDecodeError as error:
                self.bad.skip(
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
            fields, problem = split_line(line, self.separator, self.width, self.layout)
            if problem is None:
                kept += fields
            else:
                self.bad.skip(
                    problem,
                    f"{self.where}:{number}: expected head, relation, tail; {problem}: "
                    f"{printable(line)}; {advice_on(line, self.separator, number)}",
                )
        return kept


def whole_lines(stream: IO[bytes]) -> Iterator[bytes]:
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


def _is_regular(data: bytes, separator: str, width: int) -> bool:
    """Whether every line has `width` non-empty plain fields and a legal length."""
    codes = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((codes == ord(separator)) | (codes == ord("\n")))
    if len(ends) % width or b"\0" in data:
        return False
    if separator == "," and (b'"' in data or b"\t" in data):
        return False
    kinds = codes[ends].reshape(-1, width)
    return bool(
        (kinds == [*[ord(separator)] * (width - 1), ord("\n")]).all()
        and (np.diff(ends, prepend=-1) > 1).all()
        and (np.diff(ends[width - 1 :: width], prepend=-1) <= _LONGEST_LINE).all()
    )
