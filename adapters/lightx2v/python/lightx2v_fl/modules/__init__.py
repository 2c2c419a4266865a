"""The classes LightX2V makes objects of. They import LightX2V: see `lightx2v_fl.tables`."""
