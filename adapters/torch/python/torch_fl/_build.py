"""The torch that the native extension was compiled for.

Kept apart from the extension because it must be readable before the extension is opened: loading a
shared library built for another torch ends in an undefined symbol at best.
"""

TORCH_VERSION = "2.11"
"""Minor line of torch whose headers the extension was compiled against; any patch release will do."""
