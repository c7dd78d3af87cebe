// The explorer: computes the maps of the chosen patch for each shown model.

const NEIGHBORS = 6;
const explorer = { models: [], sets: {}, image: 0, mask: 0, layer: 0, patch: 0, ratio: null, draw: 0, draws: "mean", kind: "nearest", shown: new Set(), maps: {} };

async function startExplorer() {
  const block = document.getElementById("view-data");
  if (!block) return;
  const data = JSON.parse(block.textContent);
  explorer.sets = data.sets;
  explorer.models = data.models;
  for (const set of Object.values(explorer.sets)) set.pictures = await Promise.all(set.images.map(loadPicture));
  data.models.forEach((model, i) => { if (i < 2) explorer.shown.add(i); });
  buildControls();
  const first = lead();
  explorer.patch = first.masks.length ? middleOf(first.masks[0].targets, first.grid) : Math.floor(first.grid[0] / 2) * first.grid[1] + Math.floor(first.grid[1] / 2);
  explore();
  new ResizeObserver(() => explore()).observe(document.getElementById("views"));
}

function loadPicture({ uri }) {
  const picture = new Image();
  picture.src = String(uri).startsWith("data:image/") ? uri : "data:,";
  return picture.decode().then(() => picture, () => picture);
}

// The model whose image, grid and masks are in the large picture.
function lead() {
  return explorer.models[[...explorer.shown].sort()[0] ?? 0];
}

function middleOf(patches, [, columns]) {
  const mean = of => patches.reduce((sum, patch) => sum + of(patch), 0) / patches.length;
  const [row, column] = [mean(p => Math.floor(p / columns)), mean(p => p % columns)];
  const distance = p => (Math.floor(p / columns) - row) ** 2 + (p % columns - column) ** 2;
  return patches.reduce((best, patch) => distance(patch) < distance(best) ? patch : best);
}

function unpacked(model) {
  model.arrays ??= {
    layers: model.layers.map(unpack),
    predictions: model.masks.map(mask => unpack(mask.predictions)),
    positions: model.positions && preparePositions({ places: unpack(model.positions.places), noise: unpack(model.positions.noise) }),
  };
  return model.arrays;
}

// The patch of another grid that covers the center of this patch.
function samePlace(patch, [rows, columns], [otherRows, otherColumns]) {
  const row = Math.floor((Math.floor(patch / columns) + 0.5) / rows * otherRows);
  const column = Math.floor((patch % columns + 0.5) / columns * otherColumns);
  return row * otherColumns + column;
}

// All maps of one model for the chosen patch of the chosen image.
function mapsOf(model) {
  const { layers, predictions, positions } = unpacked(model);
  const patches = model.grid[0] * model.grid[1], images = explorer.sets[model.set].images.length;
  const patch = samePlace(explorer.patch, lead().grid, model.grid), image = Math.min(explorer.image, images - 1);
  const layer = Math.min(explorer.layer, layers.length - 1);
  const own = row(layers[layer], image * patches + patch);
  const maps = { patch, own: cosines(own, layers[layer], image * patches, patches) };
  const mask = model.masks[explorer.mask];
  const target = mask ? mask.targets.indexOf(patch) : -1;
  if (target >= 0) {
    const prediction = row(predictions[explorer.mask], image * mask.targets.length + target);
    maps.prediction = cosines(prediction, layers[0], image * patches, patches);
    maps.neighbors = nearestPatches(prediction, layers[0], patches, images, image, NEIGHBORS);
  } else {
    maps.neighbors = nearestPatches(own, layers[layer], patches, images, image, NEIGHBORS);
  }
  if (positions) {
    const level = explorer.ratio === null ? model.positions.level : explorer.ratio / model.positions.ratio;
    const draws = explorer.draws === "one" ? [explorer.draw % positions.draws] : [...Array(positions.draws).keys()];
    maps.level = level;
    maps.position = (explorer.kind === "nearest" ? nearestShares : positionCosines)(positions, patch, level, draws);
  }
  return maps;
}

function explore() {
  const model = lead(), mask = model.masks[explorer.mask], set = explorer.sets[model.set];
  drawScene(document.getElementById("scene"), set.pictures[explorer.image % set.pictures.length], model.grid, mask, explorer.patch);
  const isShown = (_, i) => explorer.shown.has(i);
  explorer.maps = Object.fromEntries(explorer.models.filter(isShown).map(each => [each.label, mapsOf(each)]));
  document.getElementById("views").classList.toggle("several", explorer.shown.size > 1);
  explorer.models.forEach((each, i) => {
    const panel = document.getElementById(`model-${i}`);
    panel.hidden = !isShown(each, i);
    if (!panel.hidden) showMaps(panel, each, explorer.maps[each.label]);
  });
  tellPatch(model, mask);
  showNoise();
}

function inWords(patch, grid) {
  return `row ${Math.floor(patch / grid[1]) + 1}, column ${patch % grid[1] + 1}`;
}

function tellPatch(model, mask) {
  const { patch } = explorer;
  const state = !mask ? "" : mask.targets.includes(patch) ? "masked, and predicted" : mask.context.includes(patch) ? "seen" : "hidden, not predicted";
  const found = explorer.maps[model.label];
  const whose = explorer.shown.size > 1 ? `the prediction of ${model.label}` : "its prediction";
  const like = found.prediction && `; ${whose} is most like ${inWords(extremes(found.prediction).high, model.grid)}`;
  document.getElementById("pointed").textContent = `Patch at ${inWords(patch, model.grid)}${state && `: ${state}`}${like || ""}.`;
}

function showMaps(panel, model, maps) {
  const set = explorer.sets[model.set], picture = set.pictures[explorer.image % set.pictures.length];
  for (const name of ["prediction", "own", "position"]) {
    const map = maps[name], asShare = name === "position" && explorer.kind === "nearest";
    const figure = panel.querySelector(`[data-map="${name}"]`);
    figure.classList.toggle("absent", !map);
    figure.hidden = !map && !(name === "prediction" && model.masks.length);
    if (!map) continue;
    const { high } = extremes(map), range = asShare ? [0, map[high]] : sharedRange(name);
    drawMap(figure.querySelector("canvas"), picture, model.grid, map, maps.patch, range);
    const written = value => asShare ? formatNumber(100 * value, 3, "%") : value.toFixed(2).replace("-", "−");
    figure.querySelector(".low").textContent = written(range[0]);
    figure.querySelector(".high").textContent = written(range[1]);
    figure.querySelector("canvas").setAttribute("aria-label", `Highest, ${written(map[high])}, at ${inWords(high, model.grid)}`);
    if (name === "position") figure.querySelector("small").textContent = positionWords(model, maps, asShare);
  }
  panel.querySelector(".nearest small").textContent = `Patches most like ${maps.prediction ? "the prediction" : "the patch itself"}`;
  const strip = panel.querySelector(".patches");
  maps.neighbors.forEach((found, i) => {
    const tile = strip.children[i];
    drawPatch(tile.querySelector("canvas"), set.pictures[found.image], model.grid, found.patch);
    tile.querySelector("small").textContent = found.cosine.toFixed(2).replace("-", "−");
    tile.title = `${set.images[found.image].name}, ${inWords(found.patch, model.grid)}`;
  });
}

// Over all shown models, so that a color means the same cosine. (Not for shares: a wide spread makes them small.)
function sharedRange(name) {
  const maps = Object.values(explorer.maps).flatMap(each => each[name] ? [each[name]] : []);
  return [Math.min(...maps.map(map => map[extremes(map).low])), Math.max(...maps.map(map => map[extremes(map).high]))];
}

function positionWords(model, maps, asShare) {
  const noise = (maps.level * model.positions.ratio).toFixed(2);
  if (!asShare) return `Cosine with each position, noise ${noise}`;
  const stay = maps.position[maps.patch];
  if (explorer.draws === "one") return `${stay ? "This draw stays in place" : "This draw moves away"}, noise ${noise}`;
  return `${formatNumber(100 * stay, 3, "%")} of draws stay in place, noise ${noise}${stay > 0.999 ? ": increase it to see the blur" : ""}`;
}

function trainedRatio({ positions }) {
  return positions ? positions.level * positions.ratio : 0;
}

// Each run has its own noise level until the slider is moved; until then the slider shows the highest.
function showNoise() {
  const trained = Math.max(...explorer.models.filter((_, i) => explorer.shown.has(i)).map(trainedRatio));
  document.getElementById("noise-level").value = explorer.ratio ?? trained;
  document.getElementById("noise-value").textContent = explorer.ratio === null ? `${trained.toFixed(2)}, as trained` : explorer.ratio.toFixed(2);
  document.getElementById("as-trained").hidden = explorer.ratio === null;
  document.getElementById("next-draw").hidden = explorer.draws !== "one";
}
