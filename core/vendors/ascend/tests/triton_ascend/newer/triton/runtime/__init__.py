from .driver import driver as driver
