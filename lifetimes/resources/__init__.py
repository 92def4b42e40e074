"""What a device gives out: resources that are lifetimes themselves."""

from lifetimes.resources.array import Array
from lifetimes.resources.context import Context
from lifetimes.resources.module import Kernel, Module
from lifetimes.resources.stream import Event, Stream

__all__ = ["Array", "Context", "Event", "Kernel", "Module", "Stream"]
