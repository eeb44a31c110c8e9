"""What a file is when it is not text: told by its first bytes."""

from __future__ import annotations

from allneg.errors import DataError

_MAGIC = {
    b"\x1f\x8b": ("gzip", "let its name end in .gz, or .tar.gz if it is an archive"),
    b"\xfd7zXZ\x00": ("xz", "let its name end in .xz, or .tar.xz if it is an archive"),
    b"PK\x03\x04": ("a zip archive", "let its name end in .zip"),
    b"BZh": ("bzip2", "unpack it first"),
    b"(\xb5/\xfd": ("zstandard", "unpack it first"),
    b"\xff\xfe": ("UTF-16 text", "turn it into UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "turn it into UTF-8"),
    b"PAR1": ("Parquet", "write it as tab-separated text"),
    b"SQLite format 3": ("an SQLite database", "write its triples as tab-separated text"),
    b"\x89HDF": ("HDF5", "write it as tab-separated text"),
    b"\x89PNG": ("a picture", "give a file of triples"),
    b"%PDF-": ("a PDF", "give a file of triples"),
    b"\x7fELF": ("a program", "give a file of triples"),
    b"\x80\x02": ("a pickle", "write its triples as tab-separated text"),
    b"\x80\x04": ("a pickle", "write its triples as tab-separated text"),
    b"\x80\x05": ("a pickle", "write its triples as tab-separated text"),
}


def refuse_if_not_text(start: bytes, where: str) -> None:
    """A `DataError` when a file that should hold lines of text begins like something else."""
    for magic, (kind, advice) in _MAGIC.items():
        if start.startswith(magic):
            raise DataError(f"{where}: this is {kind}, not lines of text; {advice}")
    if start[257:262] == b"ustar":
        raise DataError(f"{where}: this is a tar archive; let its name end in .tar.gz or .tar.xz")
