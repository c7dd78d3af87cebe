"""Tables of what `evaluate location` measured."""

from rich.table import Table

from flexpredict.evaluation.results import Result
from flexpredict.showing import numbers_table


class LocationResult(Result):
    """Shown as two tables: the place of a patch, and shifted images."""

    def tables(self) -> list[tuple[str, Table]]:
        place, shifts = self.details["place"], self.details["shifts"]
        told = {
            "location share": f"{100 * place['share']:.1f} %",
            "row and column read out, R²": f"{self.numbers['place R²']:.3f}",
            "mean error in patches": f"{place['error']:.2f}",
            "mean error of always saying the center": f"{place['error_of_center']:.2f}",
        }
        shown = [(self.full_title(), numbers_table({name: {self.data: value} for name, value in told.items()}))]
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
            shown.append((f"Pooled features of shifted test images{unshifted}", numbers_table(rows)))
        return shown
