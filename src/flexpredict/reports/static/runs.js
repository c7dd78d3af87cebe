// The list of runs: sorts, filters, compares, and reloads while a run is training.

const SECONDS = 5;
const list = { ...JSON.parse(document.getElementById("run-data").textContent), chosen: new Set(), key: "name", down: false };
const most = Number(document.getElementById("run-data").dataset.most);

function sortValue(run) {
  if (list.key in run.numbers) return run.numbers[list.key]?.value ?? null;
  return list.key === "time" ? run.time.value : run[list.key];
}

// Runs without a value come last in both directions.
function compareRuns(a, b) {
  const [x, y] = [sortValue(a), sortValue(b)];
  if (x === null || y === null) return (x === null) - (y === null);
  const order = typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
  return list.down ? -order : order;
}

function isShown(run) {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = [run.name, run.model, run.data, run.positions, run.state].join(" ").toLowerCase();
  return words.every(word => text.includes(word));
}

function spark(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 120 24");
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", values.length ? `Loss from ${formatNumber(values[0])} to ${formatNumber(values[values.length - 1])}` : "No loss yet");
  if (values.length > 1) {
    const low = Math.min(...values), span = Math.max(...values) - low || 1;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", values.map((value, i) => `${(120 * i / (values.length - 1)).toFixed(1)},${(22 - 20 * (value - low) / span).toFixed(1)}`).join(" "));
    svg.append(line);
  }
  return svg;
}

function runLine(run) {
  const box = make("input", { type: "checkbox", checked: list.chosen.has(run.name), ariaLabel: `Choose ${run.name}` });
  box.addEventListener("change", () => { if (box.checked) list.chosen.add(run.name); else list.chosen.delete(run.name); showChoice(); });
  const link = make("a", { href: address([run.name]), textContent: run.name });
  const done = run.done === null ? "" : `${Math.floor(100 * run.done)}%`;
  const progress = make("td", {}, make("span", { className: `state ${run.state}`, textContent: run.state }), ` ${run.state === "finished" ? "" : done}`);
  const cells = list.columns.map(key => make("td", { className: "number", textContent: run.numbers[key]?.text ?? "" }));
  const name = make("td", {}, link, make("small", { textContent: `${run.model} on ${run.data}` }));
  return make("tr", {}, make("td", {}, box), name, make("td", { textContent: run.positions }), progress,
    make("td", {}, spark(run.loss)), ...cells, make("td", { className: "number", textContent: run.time.text }));
}

function address(names) {
  return `report?${new URLSearchParams(names.map(name => ["run", name]))}`;
}

function showRuns() {
  const shown = list.runs.filter(isShown).sort(compareRuns);
  const body = document.querySelector("#runs tbody"), focused = document.activeElement?.closest("tr")?.querySelector("a")?.textContent;
  const kind = document.activeElement?.tagName;
  body.replaceChildren(...shown.map(runLine));
  if (focused && body.contains(document.activeElement) === false) {  // reloading must not lose the focus
    const line = [...body.rows].find(row => row.querySelector("a").textContent === focused);
    line?.querySelector(kind === "INPUT" ? "input" : "a").focus();
  }
  for (const heading of document.querySelectorAll("#runs th[data-key]")) {
    heading.setAttribute("aria-sort", heading.dataset.key !== list.key ? "none" : list.down ? "descending" : "ascending");
  }
  document.getElementById("none").hidden = list.runs.length > 0;
  showChoice();
}

function showChoice() {
  for (const name of list.chosen) if (!list.runs.some(run => run.name === name)) list.chosen.delete(name);
  const count = list.chosen.size, training = list.runs.filter(run => run.state === "training").length;
  const button = document.getElementById("compare");
  button.disabled = count < 2 || count > most;
  button.textContent = count ? `Compare ${count}` : "Compare";
  const words = [`${list.runs.length} ${list.runs.length === 1 ? "run" : "runs"}`];
  if (training) words.push(`${training} training`);
  if (count > most) words.push(`at most ${most} can be compared`);
  document.getElementById("told").textContent = words.join(" · ");
}

async function readAgain() {
  try {
    const answer = await fetch("runs.json");
    if (answer.ok) { list.runs = await answer.json(); showRuns(); }
  } catch { document.getElementById("told").textContent = "The server does not answer; these are the last numbers."; }
}

startTheme();
document.getElementById("filter").addEventListener("input", showRuns);
document.getElementById("compare").addEventListener("click", () => { location.href = address([...list.chosen]); });
for (const heading of document.querySelectorAll("#runs th[data-key]")) {
  heading.querySelector("button").addEventListener("click", () => {
    list.down = list.key === heading.dataset.key ? !list.down : heading.classList.contains("number") && heading.dataset.key !== "loss";
    list.key = heading.dataset.key;
    showRuns();
  });
}
showRuns();
setInterval(readAgain, 1000 * SECONDS);
