"""What can be done from the command line: a file for each command, whose `run` parses, calls and prints."""

from argparse import ArgumentParser

SOURCE = (
    "a folder of images, tar shards (shards-{000..127}.tar), parquet files, a folder made by save_to_disk, "
    "hf://NAME[:SPLIT], or scenes"
)


def command_parser(command: str, description: str) -> ArgumentParser:
    return ArgumentParser(prog=f"flexpredict {command}", description=description, allow_abbrev=False)
