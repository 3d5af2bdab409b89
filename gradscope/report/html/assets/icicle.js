// Lays out an icicle that plotly drew: plotly gives each level the same width, also the one cell that
// holds all, and letters only cells as large as the largest letters.

const ROOT_WIDTH = 28;
const LABEL_HEIGHT = 13;
const LEAST_SCALE = 0.62;

// A cell of an icicle and its rectangle, as plotly drew it.
class Slice {
  constructor(slice) {
    this.path = slice.querySelector('path.surface');
    this.text = slice.querySelector('text');
    const drawn = this.path.getAttribute('d');
    // Plotly leaves a cell alone that did not change: its path is as it was moved here.
    if (drawn !== this.path.dataset.moved) this.path.dataset.given = drawn;
    const [x0, y0, x1, , , y1] = this.path.dataset.given.match(/-?\d[\d.e-]*/g).map(Number);
    Object.assign(this, { x0, y0, x1, y1 });
  }

  holds(other) {
    return other.y0 >= this.y0 - 0.5 && other.y1 <= this.y1 + 0.5;
  }

  move(x0, x1) {
    Object.assign(this, { x0, x1 });
    const moved = `M${x0},${this.y0}L${x1},${this.y0}L${x1},${this.y1}L${x0},${this.y1}Z`;
    this.path.dataset.moved = moved;
    this.path.setAttribute('d', moved);
  }

  // The label: the name alone where the number does not fit, upright where only that fits.
  letter() {
    const { text } = this;
    if (!text) return;
    const [width, height] = [this.x1 - this.x0, this.y1 - this.y0];
    if (text.textContent !== text.dataset.shown) text.dataset.whole = text.textContent;
    const { whole } = text.dataset;
    const name = whole.replace(/  [^ ]*$/, '');
    text.removeAttribute('display');
    const tries = [[whole, false], [name, false], [whole, true], [name, true]];
    const isSeen = tries.some(([label, isUpright]) => {
      const [length, depth] = isUpright ? [height, width] : [width, height];
      const scale = Math.min(1, (depth - 1) / LABEL_HEIGHT);
      text.textContent = label;
      if (scale < LEAST_SCALE || text.getComputedTextLength() * scale > length - 8) return false;
      this.turn(isUpright, scale);
      return true;
    });
    text.dataset.shown = text.textContent;
    text.style.visibility = isSeen ? '' : 'hidden';
  }

  turn(isUpright, scale) {
    const height = this.y1 - this.y0;
    this.text.style.textAnchor = isUpright ? 'end' : 'start';
    const start = isUpright ? `translate(${this.x0 + 18},${this.y0 + 6})rotate(-90)`
      : `translate(${this.x0 + 4},${this.y0 + Math.min(height / 2 + 4.2 * scale, LABEL_HEIGHT)})`;
    this.text.setAttribute('transform', `${start}scale(${scale})`);
  }
}

// Levels from left to right, each with its cells from top to bottom.
function levelsOf(slices) {
  const levels = new Map();
  for (const slice of slices) {
    const start = Math.round(slice.x0);
    levels.set(start, [...levels.get(start) ?? [], slice]);
  }
  return [...levels].sort(([one], [other]) => one - other).map(([, level]) => level);
}

// Where each level starts, and where the last one ends: levels with few cells are narrower.
function startsOf(levels, left, right) {
  const weights = levels.map((level) => Math.min(1, 0.4 + level.length / 10));
  const isNarrow = levels[0].length === 1;
  if (isNarrow) weights[0] = 0;
  const unit = (right - left - isNarrow * ROOT_WIDTH) / weights.reduce((sum, weight) => sum + weight);
  const starts = [left];
  weights.forEach((weight) => starts.push(starts.at(-1) + (weight ? unit * weight : ROOT_WIDTH)));
  return starts;
}

// The cell that holds all is narrow, and cells that hold nothing end at the right.
function layOutIcicle(plot) {
  const slices = [...plot.querySelectorAll('.iciclelayer .trace > .slice')];
  if (slices.length < 2) return;
  const cells = slices.map((slice) => new Slice(slice));
  const levels = levelsOf(cells);
  const starts = startsOf(levels, levels[0][0].x0, Math.max(...cells.map(({ x1 }) => x1)));
  levels.forEach((level, at) => level.forEach((cell) => {
    const isLeaf = !levels[at + 1]?.some((inner) => cell.holds(inner));
    cell.move(starts[at], isLeaf ? starts.at(-1) : starts[at + 1]);
    cell.letter();
  }));
  // Neighbours would cover the lines around the selected cell and around those with findings.
  const lines = cells.map(({ path }) => path.style.stroke);
  const isRare = (line) => 2 * lines.filter((other) => other === line).length < lines.length;
  slices.filter((_, at) => isRare(lines[at])).forEach((slice) => slice.parentNode.append(slice));
}
