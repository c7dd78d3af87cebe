// The maps of the explorer, computed from the arrays of one model. A map has a value for each patch, row by row.

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

// Cosines of a unit vector with `count` rows of unit vectors, from row `first` on.
function cosines(vector, rows, first, count) {
  return Float32Array.from({ length: count }, (_, i) => dot(vector, row(rows, first + i)));
}

// Precomputed for positions: products of ψ with itself and with the noise.
function preparePositions({ places, noise }) {
  const count = places.values.length / places.dims, draws = noise.values.length / noise.dims;
  const gram = new Float64Array(count * count), moved = new Float64Array(draws * count), lengths = new Float64Array(draws);
  for (let i = 0; i < count; i++) for (let j = 0; j < count; j++) gram[i * count + j] = dot(row(places, i), row(places, j));
  for (let k = 0; k < draws; k++) {
    for (let j = 0; j < count; j++) moved[k * count + j] = dot(row(noise, k), row(places, j));
    lengths[k] = dot(row(noise, k), row(noise, k));
  }
  return { count, draws, gram, moved, lengths };
}

// For each ψ_j, the share of draws in which it is nearest to ψ_q + level · A n.
function nearestShares({ count, gram, moved }, query, level, draws) {
  const shares = new Float32Array(count);
  for (const k of draws) {
    let best = 0, least = Infinity;
    for (let j = 0; j < count; j++) {
      // ‖ψ_q + level·e - ψ_j‖² without the terms that are the same for all j
      const distance = gram[j * count + j] - 2 * gram[query * count + j] - 2 * level * moved[k * count + j];
      if (distance < least) { least = distance; best = j; }
    }
    shares[best] += 1 / draws.length;
  }
  return shares;
}

// The cosine of ψ_q + level · A n with each ψ_j, mean over the draws.
function positionCosines({ count, gram, moved, lengths }, query, level, draws) {
  const map = new Float32Array(count);
  for (const k of draws) {
    const squared = gram[query * count + query] + 2 * level * moved[k * count + query] + level * level * lengths[k];
    const length = Math.sqrt(Math.max(squared, 1e-12));
    for (let j = 0; j < count; j++) {
      map[j] += (gram[query * count + j] + level * moved[k * count + j]) / (length * Math.sqrt(gram[j * count + j]) * draws.length);
    }
  }
  return map;
}

// The patches of other images most similar to a vector, at most two from each image.
function nearestPatches(vector, rows, patches, images, own, most) {
  const found = [];
  for (let image = 0; image < images; image++) {
    if (image === own) continue;
    const map = cosines(vector, rows, image * patches, patches);
    const order = [...map.keys()].sort((a, b) => map[b] - map[a]).slice(0, 2);
    found.push(...order.map(patch => ({ image, patch, cosine: map[patch] })));
  }
  return found.sort((a, b) => b.cosine - a.cosine).slice(0, most);
}

function extremes(map) {
  let low = 0, high = 0;
  for (let i = 1; i < map.length; i++) { if (map[i] < map[low]) low = i; if (map[i] > map[high]) high = i; }
  return { low, high };
}
