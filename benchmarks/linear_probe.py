"""Speed of the linear probe against scikit-learn's lbfgs, on the same features and threads.

    OMP_NUM_THREADS=1 python benchmarks/linear_probe.py        # 50,000 x 768, 100 classes: a few minutes
    OMP_NUM_THREADS=1 python benchmarks/linear_probe.py --rows 5000 --dims 256 --classes 50

The gain comes from the correlation of the features, so it depends on how fast the eigenvalues of their covariance
fall: like k^-spectrum here. Random convolutional features of photographs have a spectrum of 1.5; with 0 (white
features) there is little gain. scikit-learn gets standardized features and, as its tolerance, the final gradient of
the probe; the objectives in the table, computed in float64, show whether both got equally far.
"""

import argparse
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from rich import box
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from flexpredict.evaluation.logistic import fit_logistic
from flexpredict.randomness import normal, sample_keys, stream_key


@dataclass(frozen=True)
class Fit:
    solver: str
    seconds: float
    iterations: int
    weight: Tensor  # D C, acts on standardized features
    bias: Tensor  # C


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dims", type=int, default=768)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--spectrum", type=float, default=1.5, help="how steeply the eigenvalues fall")
    parser.add_argument("--l2", type=float, default=1e-4)
    arguments = parser.parse_args()
    rows, classes, l2 = arguments.rows, arguments.classes, arguments.l2

    features, labels = make_features(rows + rows // 5, arguments.dims, classes, arguments.spectrum)
    standardized = (features - features[:rows].mean(dim=0)) / features[:rows].std(dim=0, correction=0)

    start = time.perf_counter()
    classifier = fit_logistic(features[:rows], labels[:rows], l2=l2, classes=classes)
    seconds = time.perf_counter() - start
    ours = Fit("flexpredict", seconds, classifier.iterations, classifier.weight, classifier.bias)

    reference = LogisticRegression(C=1 / (l2 * rows), tol=classifier.gradient, max_iter=2000)
    start = time.perf_counter()
    reference.fit(standardized[:rows].numpy(), labels[:rows].numpy())
    seconds = time.perf_counter() - start
    weight, bias = torch.from_numpy(reference.coef_).T, torch.from_numpy(reference.intercept_)
    theirs = Fit("scikit-learn lbfgs", seconds, int(reference.n_iter_[0]), weight, bias)

    table = Table(
        box=box.MARKDOWN,
        title=f"{rows} x {arguments.dims} features, {classes} classes, {torch.get_num_threads()} thread(s)\n"
        f"l2 = {l2:g}, eigenvalues k^-{arguments.spectrum:g}",
    )
    for heading in ("solver", "seconds", "iterations", "objective", "test accuracy"):
        table.add_column(heading, justify="left" if heading == "solver" else "right")
    for fit in (ours, theirs):
        accuracy = accuracy_of(fit, standardized[rows:], labels[rows:])
        table.add_row(
            fit.solver,
            f"{fit.seconds:.2f}",
            str(fit.iterations),
            f"{objective_of(fit, standardized[:rows], labels[:rows], l2):.7f}",
            f"{accuracy:.2%}",
        )
    console = Console()
    console.print(table)
    console.print(f"{theirs.seconds / ours.seconds:.1f} times faster")


def make_features(rows: int, dims: int, classes: int, spectrum: float) -> tuple[Tensor, Tensor]:
    """Overlapping Gaussian classes, rotated so that every feature mixes directions of large and small variance."""

    def draw(what: str, count: int) -> Tensor:
        return normal(sample_keys(stream_key(0, what), torch.arange(count)), dims)

    deviation = torch.arange(1, dims + 1) ** (-spectrum / 2)
    labels = torch.arange(rows) % classes
    features = (draw("images", rows) + 0.15 * draw("classes", classes)[labels]) * deviation
    return features @ torch.linalg.qr(draw("rotation", dims)).Q, labels


def objective_of(fit: Fit, features: Tensor, labels: Tensor, l2: float) -> float:
    weight, bias = fit.weight.double(), fit.bias.double()
    cross_entropy = sum(
        F.cross_entropy(x.double() @ weight + bias, y, reduction="sum").item()
        for x, y in zip(torch.split(features, 4096), torch.split(labels, 4096), strict=True)
    )
    return cross_entropy / len(labels) + l2 / 2 * weight.square().sum().item()


def accuracy_of(fit: Fit, features: Tensor, labels: Tensor) -> float:
    logits = features @ fit.weight.to(features) + fit.bias.to(features)
    return (logits.argmax(dim=1) == labels).double().mean().item()


if __name__ == "__main__":
    main()
