"""The formats of `allneg export`, without any import."""

# The suffixes of each format; the first one is added to a name that has none. Neo4j has a folder.
FORMATS: dict[str, tuple[str, ...]] = {
    "npy": (".npy",),
    "parquet": (".parquet",),
    "csv": (".csv",),
    "word2vec": (".vec", ".txt"),
    "safetensors": (".safetensors",),
    "neo4j": (),
}
