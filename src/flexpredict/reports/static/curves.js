// All charts of the page: how they are drawn, and the zoom that they share.

const curveView = { along: "steps", scale: "auto", smoothing: 2, range: null, zoomTo };
let curveData = null;
let charts = [];

function startCurves() {
  const block = document.getElementById("curve-data");
  if (!block) return;
  curveData = JSON.parse(block.textContent);
  for (const [id, name] of [["along", "along"], ["scale", "scale"], ["smoothing", "smoothing"]]) {
    document.getElementById(id).addEventListener("input", event => {
      curveView[name] = name === "smoothing" ? Number(event.target.value) : event.target.value;
      if (name === "along") curveView.range = null;
      redrawCharts();
    });
  }
  document.getElementById("whole").addEventListener("click", () => zoomTo(null));
  themeChanged.addEventListener("change", () => charts.forEach(({ drawn }) => drawn.redraw(false)));
  const resized = new ResizeObserver(entries => entries.forEach(({ target, contentRect }) => {
    const drawn = charts.find(({ plot }) => plot === target)?.drawn;
    if (drawn && contentRect.width && drawn.width !== Math.floor(contentRect.width)) setWidth(drawn, contentRect.width);
  }));
  // No script runs after the layout for paper, so charts get about their printed width before.
  addEventListener("beforeprint", () => charts.forEach(({ plot, drawn }) => setWidth(drawn, plot.closest(".rows-of-1") ? 640 : 300)));
  addEventListener("afterprint", () => charts.forEach(({ plot, drawn }) => setWidth(drawn, plot.clientWidth)));
  redrawCharts();
  charts.forEach(({ plot }) => { resized.observe(plot); plot.addEventListener("keydown", onChartKey); });
}

function setWidth(drawn, width) {
  drawn.setSize({ width: Math.floor(width), height: PLOT_HEIGHT });
}

function redrawCharts() {
  charts.forEach(({ drawn }) => drawn.destroy());
  charts = [...document.querySelectorAll(".chart")].filter(figure => figure.dataset.metric in curveData.charts).map(figure => ({
    figure, plot: figure.querySelector(".plot"), key: figure.dataset.metric,
    drawn: drawChart(figure, curveData.charts[figure.dataset.metric], curveData.runs, curveView),
  }));
  document.getElementById("whole").hidden = curveView.range === null;
}

function zoomTo(range) {
  curveView.range = range;
  document.getElementById("whole").hidden = range === null;
  for (const { drawn } of charts) {
    const xs = drawn.data[0];
    const [low, high] = range ?? [xs[0], xs[xs.length - 1]];
    drawn.setScale("x", { min: low, max: high });
  }
}

function onChartKey(event) {
  const { drawn } = charts.find(({ plot }) => plot === event.currentTarget);
  const xs = drawn.data[0], { min, max } = drawn.scales.x;
  const at = drawn.cursor.idx ?? xs.length - 1;
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -xs.length, End: xs.length };
  if (event.key in moves) {
    const index = Math.min(xs.length - 1, Math.max(0, at + moves[event.key]));
    drawn.setCursor({ left: drawn.valToPos(xs[index], "x"), top: 1 });
  } else if (event.key === "+" || event.key === "-") {
    const middle = xs[at], half = (max - min) * (event.key === "+" ? 0.25 : 1);
    zoomTo([Math.max(xs[0], middle - half), Math.min(xs[xs.length - 1], middle + half)]);
  } else if (event.key === "Escape") {
    zoomTo(null);
  } else return;
  event.preventDefault();
}
