"""What can be done from the command line: a file for each command, whose `run` parses, calls and prints."""

from argparse import ArgumentParser

SOURCE = (
    "a folder of images, tar shards (shards-{000..127}.tar), parquet files, a folder made by save_to_disk, "
    "hf://NAME[:SPLIT], or scenes"
)


def command_parser(command: str, needed: str, description: str) -> ArgumentParser:
    """needed: what must be said besides the name of the command."""
    usage = f"flexpredict {command} {needed} [OPTIONS]".replace("  ", " ")
    return ArgumentParser(prog=f"flexpredict {command}", usage=usage, description=description, allow_abbrev=False)
