"""What a release needs: one version everywhere, and changelogs that know it.

`versions` reads and writes the copies of the version, `changelogs` what the two changelogs say.
``python -m tests.release check`` tells everything that is missing.
"""
