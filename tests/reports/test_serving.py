"""The site of all runs: what it lists, and what it does not let anyone see."""

import http.client
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from served_site import served
from written_runs import CONFIG, full_lines, make_run

from flexpredict import UserError, serve
from flexpredict.reports.run_list import RunList
from flexpredict.reports.serving import is_loopback, make_site
from flexpredict.runs.run_record import STOPPED


def ask(port: int, path: str, method: str = "GET", host: str = "localhost") -> tuple[int, str]:
    """The status and the text, for a path that is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def listed(port: int) -> dict[str, Any]:
    return {run["name"]: run for run in json.loads(ask(port, "/runs.json")[1])}


def test_runs_at_any_depth_are_listed_with_their_numbers(tmp_path: Path) -> None:
    make_run(tmp_path / "a" / "deep" / "run", [{"step": 5, "epoch": 5, "loss": 0.25, "linear_accuracy": 0.5}])
    make_run(tmp_path / "b", full_lines(100))
    (tmp_path / "no run").mkdir()
    with served(tmp_path) as port:
        runs = listed(port)
    assert list(runs) == ["a/deep/run", "b"]
    deep = runs["a/deep/run"]
    assert deep["numbers"]["loss"] == {"value": 0.25, "text": "0.250"}
    assert deep["numbers"]["linear_accuracy"]["text"] == "50.0%" and deep["done"] == 0.5
    assert (deep["state"], runs["b"]["state"]) == ("training", "finished")


def test_a_log_that_nothing_was_written_to_for_long_is_of_a_run_that_stopped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [{"step": 5, "epoch": 5, "loss": 0.25}])
    before = time.time() - 1000
    os.utime(run / "metrics.jsonl", (before, before))
    with served(tmp_path) as port:
        assert listed(port)["run"]["state"] == "stopped"


def test_a_run_whose_loss_was_not_a_number_is_listed_as_broken(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [{"step": 5, "epoch": 5, "loss": 0.25}])
    warning = {"step": 7, "text": f"The loss of step 7 is not a number, {STOPPED}."}
    (run / "warnings.jsonl").write_text(json.dumps(warning) + "\n")
    with served(tmp_path) as port:
        assert listed(port)["run"]["state"] == "broken"


def test_new_lines_and_new_runs_appear_without_a_restart(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", [{"step": 1, "loss": 1.0}])
    with served(tmp_path) as port:
        assert listed(port)["one"]["numbers"]["loss"]["value"] == 1.0
        with (run / "metrics.jsonl").open("a") as file:
            file.write('{"step": 2, "loss": 0.5}\n')
        make_run(tmp_path / "two", [{"step": 1, "loss": 1.0}])
        assert listed(port)["one"]["numbers"]["loss"]["value"] == 0.5 and "two" in listed(port)
        curves = json.loads(ask(port, "/curves.json?run=one")[1])
        assert curves["charts"]["loss"]["series"][0]["raw"] == [[1, 2], [1.0, 0.5]]


def test_runs_are_compared_on_one_page(tmp_path: Path) -> None:
    for name, seed in (("one", 0), ("two", 1)):
        make_run(tmp_path / name, [{"step": 1, "loss": 1.0}], {**CONFIG, "seed": seed})
    with served(tmp_path) as port:
        status, page = ask(port, "/report?run=one&run=two")
    assert status == 200 and "2 runs side by side" in page
    assert re.search(r'class="differs"><th scope="row">seed</th>', page)


@pytest.mark.parametrize(
    "path",
    [
        *("/report?run=../secret", "/report?run=%2e%2e%2fsecret", "/report?run=inside/../../secret", "/report"),
        *("/../secret/config.yaml", "/%2e%2e/secret/config.yaml", "/inside/config.yaml", "//etc/passwd"),
        *("/curves.json?run=../secret", "/report?run=/etc", "/report?run=linked", "/static/page.css"),
    ],
)
def test_nothing_but_pages_of_listed_runs_is_sent(tmp_path: Path, path: str) -> None:
    secret = make_run(tmp_path / "secret", [{"step": 1, "loss": 1.0}], {**CONFIG, "data": "hidden"})
    make_run(tmp_path / "root" / "inside")
    (tmp_path / "root" / "linked").symlink_to(secret)
    with served(tmp_path / "root") as port:
        status, text = ask(port, path)
    assert status == 404 and "hidden" not in text


def test_files_of_a_run_that_lie_elsewhere_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"password": "hidden"}')
    run = make_run(tmp_path / "root" / "run")
    with served(tmp_path / "root") as port:
        assert "run" in listed(port)
        (run / "environment.json").symlink_to(tmp_path / "secret.json")
        assert listed(port) == {} and "hidden" not in ask(port, "/report?run=run")[1]


def test_it_only_reads_and_answers_to_its_own_names_only(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with served(tmp_path) as port:
        for method in ("POST", "PUT", "DELETE"):
            assert ask(port, "/runs.json", method)[0] == 405
        assert ask(port, "/runs.json", host="evil.example")[0] == 400, "a page from elsewhere cannot read along"
        assert ask(port, "/runs.json", host=f"127.0.0.1:{port}")[0] == 200


def test_a_page_in_a_run_folder_gives_data_and_never_code(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [{"step": 1, "loss": 1.0}])
    parts: dict[str, Any] = {"grid": [1, 1], "layers": [], "masks": [], "positions": None, "pictures": {}}
    views = {"sets": {"s": {}}, "models": [{"set": "s", "what": "<script>alert(2)", **parts}]}
    block = f'<script type="application/json" id="view-data">{json.dumps(views)}</script>'
    (run / "report.html").write_text(f'<script>alert("from the run")</script>{block}')
    with served(tmp_path) as port:
        page = ask(port, "/report?run=run")[1]
    assert "from the run" not in page and "<script>alert" not in page
    assert "\\u003cscript\\u003ealert(2)" in page


def test_a_run_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    (make_run(tmp_path / "bad") / "config.yaml").write_text("a: [")
    make_run(tmp_path / "good", [{"step": 1, "loss": float("nan")}])
    assert list(RunList(tmp_path).read()) == ["good"]
    with served(tmp_path) as port:
        assert listed(port)["good"]["numbers"]["loss"] == {"value": None, "text": "not finite"}


@pytest.mark.parametrize(
    ("host", "own"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_which_addresses_are_this_machine_alone(host: str, own: bool) -> None:
    assert is_loopback(host) == own


def test_lists_and_pages_do_not_wait_for_torch(tmp_path: Path) -> None:
    make_run(tmp_path / "run", full_lines(20))
    code = f"""
import sys
from pathlib import Path
from urllib.request import urlopen
from flexpredict import api
from served_site import served
with served(Path({str(tmp_path)!r})) as port:
    for path in ("", "runs.json", "report?run=run", "curves.json?run=run"):
        assert urlopen(f"http://127.0.0.1:{{port}}/{{path}}").status == 200
heavy = [name for name in ("torch", "timm", "numpy", "matplotlib", "PIL") if name in sys.modules]
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_cannot_be_served_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no folder"):
        make_site(tmp_path / "missing", "127.0.0.1")
    with pytest.raises(UserError, match="port=0"):
        serve(tmp_path, port=0)
