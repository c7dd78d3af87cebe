"""Types of sizes. The height always comes first."""

from typing import TypeAlias

Size: TypeAlias = tuple[int, int]  # height and width: of an image in pixels, of a block in patches
Grid: TypeAlias = tuple[int, int]  # rows and columns of the patches of an image
