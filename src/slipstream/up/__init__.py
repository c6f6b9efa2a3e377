"""The supervisor behind `slipstream up`: starts the parts of the platform as processes, and keeps them running.

It knows processes, files and HTTP, and nothing of messages: a part is a command, the variables it gets, and an address
that says when it is ready. Only the commands call it.
"""

from slipstream.up.part import Part, PartsFile, PartStatus, State
from slipstream.up.settings import InvalidUp, UpSettings, load_settings
from slipstream.up.supervisor import Supervisor

__all__ = ["InvalidUp", "Part", "PartStatus", "PartsFile", "State", "Supervisor", "UpSettings", "load_settings"]
