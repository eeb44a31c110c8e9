"""Where what may be fetched or built again is kept for this user."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$ALLNEG_HOME, or the user's cache folder."""
    home = os.environ.get("ALLNEG_HOME")
    if home:
        return Path(home)
    # Imported here: a bare GPU machine has no platformdirs, and needs none with ALLNEG_DATA set.
    from platformdirs import user_cache_path

    return user_cache_path("allneg")
