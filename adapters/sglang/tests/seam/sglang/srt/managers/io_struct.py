from dataclasses import dataclass


@dataclass
class ProfileReqOutput:
    success: bool
    message: str
