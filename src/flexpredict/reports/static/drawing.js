// Images with patches, masks or maps drawn over them.

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"]
  .map(color => [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16)));

function heat(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1), below = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return VIRIDIS[below].map((low, i) => Math.round(low + (VIRIDIS[below + 1][i] - low) * (at - below)));
}

// As many pixels as on the screen, so that lines are sharp.
function prepareCanvas(canvas, aspect) {
  const width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  canvas.width = width;
  canvas.height = Math.max(1, Math.round(width * aspect));
  return canvas.getContext("2d");
}

function patchBox(canvas, [rows, columns], patch) {
  const width = canvas.width / columns, height = canvas.height / rows;
  return [patch % columns * width, Math.floor(patch / columns) * height, width, height];
}

// The image: context bright, targets dark with a colored edge, the rest dark.
function drawScene(canvas, picture, grid, mask, chosen) {
  const ctx = prepareCanvas(canvas, picture.naturalHeight / picture.naturalWidth);
  ctx.imageSmoothingQuality = "high";
  ctx.drawImage(picture, 0, 0, canvas.width, canvas.height);
  if (mask) {
    const seen = new Set(mask.context), predicted = new Set(mask.targets);
    for (let patch = 0; patch < grid[0] * grid[1]; patch++) {
      if (seen.has(patch)) continue;
      const [x, y, width, height] = patchBox(canvas, grid, patch);
      ctx.fillStyle = predicted.has(patch) ? "rgba(12, 14, 20, .62)" : "rgba(12, 14, 20, .8)";
      ctx.fillRect(x, y, width + 0.5, height + 0.5);
      if (!predicted.has(patch)) continue;
      ctx.strokeStyle = "rgba(255, 190, 70, .85)";
      ctx.lineWidth = devicePixelRatio;
      ctx.strokeRect(x + 1, y + 1, width - 2, height - 2);
    }
  }
  ctx.strokeStyle = "rgba(255, 255, 255, .16)";
  ctx.lineWidth = 1;
  for (let column = 1; column < grid[1]; column++) line(ctx, column * canvas.width / grid[1], 0, 0, canvas.height);
  for (let row = 1; row < grid[0]; row++) line(ctx, 0, row * canvas.height / grid[0], canvas.width, 0);
  markPatch(ctx, canvas, grid, chosen);
}

function line(ctx, x, y, width, height) {
  ctx.beginPath(); ctx.moveTo(x, y); ctx.lineTo(x + width, y + height); ctx.stroke();
}

// Black and white are visible on any color.
function markPatch(ctx, canvas, grid, patch) {
  const [x, y, width, height] = patchBox(canvas, grid, patch);
  for (const [color, thick] of [["#000", 4], ["#fff", 2]]) {
    ctx.strokeStyle = color;
    ctx.lineWidth = thick * devicePixelRatio;
    ctx.strokeRect(x, y, width, height);
  }
}

// A map over the gray image, from its lowest to its highest value.
function drawMap(canvas, picture, grid, map, chosen, [low, high]) {
  const ctx = prepareCanvas(canvas, picture.naturalHeight / picture.naturalWidth);
  ctx.filter = "grayscale(1)";
  ctx.drawImage(picture, 0, 0, canvas.width, canvas.height);
  ctx.filter = "none";
  ctx.globalAlpha = 0.8;
  map.forEach((value, patch) => {
    const [x, y, width, height] = patchBox(canvas, grid, patch);
    ctx.fillStyle = `rgb(${heat((value - low) / (high - low || 1)).join(",")})`;
    ctx.fillRect(Math.floor(x), Math.floor(y), Math.ceil(width), Math.ceil(height));
  });
  ctx.globalAlpha = 1;
  markPatch(ctx, canvas, grid, chosen);
}

// A patch with its surroundings.
function drawPatch(canvas, picture, grid, patch) {
  const ctx = prepareCanvas(canvas, 1);
  const width = picture.naturalWidth / grid[1], height = picture.naturalHeight / grid[0];
  const side = Math.min(3 * Math.max(width, height), picture.naturalWidth, picture.naturalHeight);
  const [left, top] = [patch % grid[1] * width, Math.floor(patch / grid[1]) * height];
  const x = Math.min(Math.max(0, left + (width - side) / 2), picture.naturalWidth - side);
  const y = Math.min(Math.max(0, top + (height - side) / 2), picture.naturalHeight - side);
  const scale = canvas.width / side;
  ctx.imageSmoothingQuality = "high";
  ctx.drawImage(picture, -x * scale, -y * scale, picture.naturalWidth * scale, picture.naturalHeight * scale);
  ctx.strokeStyle = "#fff";
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.strokeRect((left - x) * scale, (top - y) * scale, width * scale, height * scale);
}
