"""What `evaluate location` prints."""

from rich.console import Console

from flexpredict.evaluation.results import Result, print_numbers


def print_location(console: Console, result: Result) -> None:
    """Two tables: the place of a patch, and shifted images."""
    place, shifts = result.details["place"], result.details["shifts"]
    settings = result.protocol["settings"]
    told = {
        "location share": f"{100 * place['share']:.1f} %",
        "row and column read out, R²": f"{result.numbers['place R²']:.3f}",
        "mean error in patches": f"{place['error']:.2f}",
        "mean error of always saying the center": f"{place['error_of_center']:.2f}",
    }
    title = f"What patches tell of their place: {result.encoder}{settings and f', {settings}'}"
    print_numbers(console, title, {name: {result.data: value} for name, value in told.items()})
    rows = {}
    for moved in shifts["moved"]:
        row = {
            "1 - cosine": f"{moved['cosine_distance']:.4f}",
            "of distance between images (%)": f"{100 * moved['relative']:.1f}",
        }
        if shifts["accuracy"] is not None:
            row["accuracy (%)"] = f"{100 * moved['accuracy']:.2f}"
            row["lost"] = f"{100 * (shifts['accuracy'] - moved['accuracy']):.2f}"
        rows[moved["shift"]["name"]] = row
    if rows:
        accuracy = shifts["accuracy"]
        unshifted = "" if accuracy is None else f" (accuracy without a shift: {100 * accuracy:.2f} %)"
        print_numbers(console, f"Pooled features of shifted test images{unshifted}", rows)
