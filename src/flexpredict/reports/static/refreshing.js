// Pages from `flexpredict serve` reload their curves while a run is training.

const SECONDS_BETWEEN = 5;

function startRefreshing() {
  if (!document.body.hasAttribute("data-served") || !curveData) return;
  let known = JSON.stringify(curveData);
  setInterval(async () => {
    try {
      const answer = await fetch(`curves.json${location.search}`);
      if (!answer.ok) return;
      const text = await answer.text();
      if (text !== known) { known = text; curveData = JSON.parse(text); redrawCharts(); }
    } catch { /* the server does not answer: keep the curves */ }
  }, 1000 * SECONDS_BETWEEN);
}
