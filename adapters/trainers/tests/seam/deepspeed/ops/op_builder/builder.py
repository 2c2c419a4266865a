"""The double of the base of DeepSpeed's builders."""


class OpBuilder:
    """A builder of an extension of a name."""

    def __init__(self, name: str) -> None:
        self.name = name
