"""Configurations that are ready to run, as JSON files beside this one."""
