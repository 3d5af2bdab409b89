// Decodes columns, as `columns.py` writes them, wherever they stand in a tab's data.

function bytesOf(text) {
  const signs = atob(text);
  const bytes = new Uint8Array(signs.length);
  for (let at = 0; at < signs.length; at += 1) bytes[at] = signs.charCodeAt(at);
  return bytes.buffer;
}

const INTEGERS = { 1: Int8Array, 2: Int16Array, 4: Int32Array };
const UNSPELLED = { nan: NaN, inf: Infinity, '-inf': -Infinity };

function floats(column) {
  const found = Array.from('f8' in column
    ? new Float64Array(bytesOf(column.f8)) : new Float32Array(bytesOf(column.f4)));
  if (column.none) for (const index of new Int32Array(bytesOf(column.none))) found[index] = null;
  return found;
}

function decoded(value) {
  if (Array.isArray(value)) return value.map(decoded);
  if (value === null || typeof value !== 'object') return value;
  if ('f8' in value || 'f4' in value) return floats(value);
  if ('at' in value && 'bytes' in value) {
    const { words } = value;
    return Array.from(new INTEGERS[value.bytes](bytesOf(value.at)),
      (index) => (index < 0 ? null : words ? words[index] : index));
  }
  if ('same' in value && 'count' in value) {
    const one = typeof value.same === 'string' ? UNSPELLED[value.same] : value.same;
    return new Array(value.count).fill(one);
  }
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, decoded(inner)]));
}
