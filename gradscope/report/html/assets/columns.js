// Decodes columns, as `columns.py` writes them, wherever they stand in a sheet's data.

const bytesOf = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0)).buffer;
const placesOf = (text) => new Int32Array(bytesOf(text));

function decoded(value) {
  if (Array.isArray(value)) return value.map(decoded);
  if (value === null || typeof value !== 'object') return value;
  if ('f8' in value || 'f4' in value) {
    const found = Array.from(
      'f8' in value ? new Float64Array(bytesOf(value.f8)) : new Float32Array(bytesOf(value.f4)));
    if (value.none) for (const place of placesOf(value.none)) found[place] = null;
    return found;
  }
  if ('words' in value && 'at' in value) {
    return Array.from(placesOf(value.at), (place) => (place < 0 ? null : value.words[place]));
  }
  if (typeof value.at === 'string' && Object.keys(value).length === 1) {
    return Array.from(placesOf(value.at), (place) => (place < 0 ? null : place));
  }
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, decoded(inner)]));
}
