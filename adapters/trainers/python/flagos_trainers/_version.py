"""Version of this distribution. All flagos distributions share one version."""

from importlib import metadata

try:
    __version__ = metadata.version("flagos-trainers")
except metadata.PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0+unknown"
