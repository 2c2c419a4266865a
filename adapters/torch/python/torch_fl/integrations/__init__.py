"""Completes other libraries where they do not know the flagos device.

Each module here completes one module of a library, when that is imported (see torch_fl.integrations.on_import);
none of the libraries is needed, and none is imported from here.
"""
