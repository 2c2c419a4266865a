"""Making kernel packs: see `torch_fl.flaggems.pack_file`."""
