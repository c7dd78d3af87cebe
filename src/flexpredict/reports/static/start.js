startTheme();
startTables();
startCurves();
startRefreshing();
// For debugging, and for the tests of the page.
window.flexpredict = {
  curves: () => charts.map(({ key, drawn }) => ({ key, data: drawn.data, scales: drawn.scales })),
  view: curveView, explorer, ready: startExplorer().then(startPictures),
};
