// Decodes the arrays of the page, which are base64: directions as int8, other numbers as float16.

function bytesOf(text) {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// Rows of `dims` numbers in one Float32Array; int8 rows, which only store directions, become unit vectors.
function unpack(packed) {
  const dims = packed.dims;
  if (packed.float16 !== undefined) return { dims, values: halves(bytesOf(packed.float16)) };
  const bytes = new Int8Array(bytesOf(packed.int8).buffer), values = new Float32Array(bytes.length);
  for (let start = 0; start < bytes.length; start += dims) {
    let squares = 0;
    for (let i = start; i < start + dims; i++) squares += bytes[i] * bytes[i];
    const length = Math.sqrt(squares) || 1;
    for (let i = start; i < start + dims; i++) values[i] = bytes[i] / length;
  }
  return { dims, values };
}

function halves(bytes) {
  const words = new Uint16Array(bytes.buffer, 0, bytes.length >> 1), values = new Float32Array(words.length);
  for (let i = 0; i < words.length; i++) {
    const word = words[i], exponent = (word >> 10) & 31, fraction = word & 1023;
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
    values[i] = word & 0x8000 ? -size : size;
  }
  return values;
}

function row({ dims, values }, index) {
  return values.subarray(index * dims, (index + 1) * dims);
}
