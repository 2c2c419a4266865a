"""The configuration of a run: the command line, and the file it names."""

import json


def set_config(args):
    config = dict(vars(args))
    if config.get("config_json"):
        with open(config["config_json"]) as file:
            config.update(json.load(file))
    return config
