"""Lines of text → ids: exact names, bounded memory, and a mistake is named by file and line.

A block of bytes that looks regular (three fields a line, none empty) is cut and numbered as a
whole; one that does not is gone through line by line, which finds the mistake or mends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import numpy as np

from allneg.errors import DataError, RecipeError, printable
from allneg.graph.fields import complaint, cut, header
from allneg.graph.files import DAMAGE, TripleFile
from allneg.graph.graph import Triples
from allneg.graph.magic import refuse_if_not_text
from allneg.recipe import Data

_BLOCK = 1 << 22  # bytes read at once
_LONGEST_LINE = 1 << 20  # bytes; names are short, and memory must stay bounded
_BOM = b"\xef\xbb\xbf"
_NEWLINE = ord("\n")


class Ids(dict[str, int]):
    """Names and their ids: a name that was not there gets the next number."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def read_lines(
    file: TripleFile, settings: Data, entities: Ids, relations: Ids
) -> tuple[Triples, list[str]]:
    """The triples of a file in its order, and notes on what was mended; names join the `Ids`.

    In .txt and .tsv a tab separates and every other byte belongs to a name: no quoting, no
    missing values, no numbers. In .csv a comma separates, and a field may stand in double quotes
    as RFC 4180 has it. No name holds a tab, a line feed or a NUL.
    """
    notes: list[str] = []
    parts = [np.empty((0, 3), dtype=np.int64)]
    for names, links in named_blocks(file, settings, notes):
        parts.append(numbered(names, links, entities, relations))
    return np.concatenate(parts), notes


def named_blocks(
    file: TripleFile, settings: Data, notes: list[str]
) -> Iterator[tuple[list[str], list[str]]]:
    """A file's names, a block at a time: of its heads and tails by turns, and of its relations.

    What was mended joins the `notes` at the end.
    """
    _check_settings(settings)
    reader = _Reader(file, settings)
    heads, links, tails = (settings.columns.index(letter) for letter in "hrt")
    with _opened(file) as stream:
        for fields in reader.blocks(stream):
            # Head and tail by turns, so that ids follow the order of reading.
            names = [""] * (2 * (len(fields) // 3))
            names[0::2], names[1::2] = fields[heads::3], fields[tails::3]
            yield names, fields[links::3]
    notes += reader.notes()


def numbered(names: list[str], links: list[str], entities: Ids, relations: Ids) -> Triples:
    """The triples of a block of names, which join the `Ids`: (n, 3)."""
    part = np.empty((len(links), 3), dtype=np.int64)
    numbers = np.fromiter(map(entities.__getitem__, names), np.int64, len(names))
    part[:, 0], part[:, 2] = numbers[0::2], numbers[1::2]
    part[:, 1] = np.fromiter(map(relations.__getitem__, links), np.int64, len(part))
    return part


def _check_settings(settings: Data) -> None:
    if sorted(settings.columns) != sorted("hrt"):
        raise RecipeError("data.columns must be the letters h, r, t in some order, such as hrt")
    # What follows a backslash is kept, too: unicode_escape would make other letters of it.
    plain = rb"\n\x41\u0041", bytes(range(128))
    try:
        fits = all(each.decode(settings.encoding) == each.decode("ascii") for each in plain)
    except (LookupError, ValueError):  # of a name with a NUL, too
        fits = False
    if not fits:
        raise RecipeError(
            f"data.encoding: {printable(settings.encoding)} is not known, or does not keep ASCII "
            "as it is; turn the file into UTF-8"
        )


@dataclass
class _Reader:
    """Goes through one file, keeping count of where it is and of what it mended."""

    file: TripleFile
    settings: Data
    line: int = 0  # lines before the current block
    offset: int = 0  # bytes before the current block
    bom: bool = False
    header: bool = False
    blank: int = 0
    skipped: int = 0  # bad lines left out
    lone_returns: int = 0

    def blocks(self, stream: IO[bytes]) -> Iterator[list[str]]:
        """Fields of the file, flat, three a triple, a block at a time."""
        for block in _whole_lines(stream, self.file.where):
            if self.offset == 0:
                refuse_if_not_text(block, self.file.where)
                if block.startswith(_BOM):
                    self.bom, self.offset, block = True, len(_BOM), block[len(_BOM) :]
            yield self._fields(block)
            self.line += block.count(b"\n")
            self.offset += len(block)

    def notes(self) -> list[str]:
        found = [
            (self.bom, "a byte order mark at the start was left out"),
            (self.header, "the first line names the columns and was left out"),
            (self.blank, f"blank lines left out: {self.blank:,}"),
            (self.skipped, f"bad lines left out (data.skip_bad_lines): {self.skipped:,}"),
            (self.lone_returns, f"carriage returns inside names, kept: {self.lone_returns:,}"),
        ]
        return [f"{self.file.where}: {text}" for there, text in found if there]

    def _fields(self, block: bytes) -> list[str]:
        data = block.replace(b"\r\n", b"\n") if b"\r" in block else block
        if not data.endswith(b"\n"):
            data += b"\n"
        self.lone_returns += data.count(b"\r")
        separator = self.file.separator
        regular = _is_regular(data, separator)
        if not regular:
            self._refuse_overlong(data)
        text = self._decoded(data, block)
        fields = text.replace("\n", separator).split(separator)[:-1] if regular else []
        if len(fields) != 3 * data.count(b"\n"):
            fields = self._line_by_line(text)
        if self.line == 0 and self._is_header(fields[:3]):
            self.header = True
            del fields[:3]
        return fields

    def _refuse_overlong(self, data: bytes) -> None:
        ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE)
        overlong = np.flatnonzero(np.diff(ends, prepend=-1) > _LONGEST_LINE)
        if len(overlong):
            raise DataError(
                f"{self.file.where}:{self.line + int(overlong[0]) + 1}: a line of more than "
                f"{_LONGEST_LINE:,} bytes; is this a file of triples?"
            )

    def _decoded(self, data: bytes, block: bytes) -> str:
        encoding = self.settings.encoding
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            pass
        try:
            block.decode(encoding)
        except UnicodeDecodeError as error:
            line = self.line + block.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{self.file.where}:{line}: not {encoding} at byte {self.offset + error.start:,} "
                f"(0x{block[error.start]:02x}); say data.encoding, such as latin-1"
            ) from None
        raise DataError(f"{self.file.where}: not {encoding}; say data.encoding, such as latin-1")

    def _line_by_line(self, text: str) -> list[str]:
        kept: list[str] = []
        lines = text.split("\n")
        lines.pop()
        for number, line in enumerate(lines, start=self.line + 1):
            if not line.strip(" "):
                self.blank += 1
                continue
            if "\0" in line:
                raise DataError(
                    f"{self.file.where}:{number}: a NUL character in {printable(line)}; "
                    "is this UTF-16 text or a binary file? Turn it into UTF-8"
                )
            fields, wrong = cut(line, self.file.separator)
            if wrong is None:
                kept += fields
            elif self.skipped < self.settings.skip_bad_lines:
                self.skipped += 1
            else:
                before = f" (left out before: {self.skipped:,})" if self.skipped else ""
                said = complaint(number, line, self.file.separator, wrong)
                raise DataError(f"{self.file.where}:{number}: {said}{before}")
        return kept

    def _is_header(self, fields: list[str]) -> bool:
        letters, columns = header(fields), self.settings.columns
        if letters not in (None, columns):
            raise DataError(
                f"{self.file.where}: the columns are called {', '.join(fields)}, "
                f"and data.columns is {columns}; say data.columns={letters}"
            )
        return letters is not None


@contextmanager
def _opened(file: TripleFile) -> Iterator[IO[bytes]]:
    try:
        with file.open() as stream:
            yield stream
    except DAMAGE as error:
        raise DataError(f"{file.where}: cannot be read ({error})") from None


def _whole_lines(stream: IO[bytes], where: str) -> Iterator[bytes]:
    """Blocks that end where a line ends; a block without any line end is one overlong line."""
    rest = b""
    try:
        while block := stream.read(_BLOCK):
            end = block.rfind(b"\n") + 1
            if end:
                yield rest + block[:end]
                rest = block[end:]
            else:
                rest += block
            if len(rest) > _LONGEST_LINE:
                break
    except DAMAGE as error:
        raise DataError(f"{where}: damaged or cut off ({error}); get the file again") from None
    if rest:
        yield rest


def _is_regular(data: bytes, separator: str) -> bool:
    """Whether every line has three fields, none empty, without quotes, NULs or undue length."""
    codes = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((codes == ord(separator)) | (codes == _NEWLINE))
    if len(ends) % 3 or b"\0" in data or (separator == "," and b'"' in data):
        return False
    kinds = codes[ends].reshape(-1, 3)
    return bool(
        (kinds[:, :2] == ord(separator)).all()
        and (kinds[:, 2] == _NEWLINE).all()
        and (np.diff(ends, prepend=-1) > 1).all()
        and (np.diff(ends[2::3], prepend=-1) <= _LONGEST_LINE).all()
    )
