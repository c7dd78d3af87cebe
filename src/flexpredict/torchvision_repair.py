"""Makes `import torchvision` (hence timm) work beside a CPU build of torch.

torchvision's compiled operators do not load there, and its Python part then dies with "operator torchvision::nms
does not exist" while registering shape rules for two operators. Declaring those two is enough: nothing here
calls them. If torchvision can be imported as it is, this does nothing.
"""

import importlib
import sys

import torch

_SCHEMAS = ("nms", "qnms")
_keep_alive: list[torch.library.Library] = []


def repair() -> None:
    """Import torchvision, and declare its missing operators first if that is what it needs."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _SCHEMAS:
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _keep_alive.append(library)
        importlib.import_module("torchvision")
