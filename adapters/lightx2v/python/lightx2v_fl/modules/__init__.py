"""The classes that LightX2V instantiates. They import LightX2V: see `lightx2v_fl.tables`."""
