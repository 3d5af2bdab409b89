// The first charts before plotly is there, which takes a second to start: lines, marks, axes and
// names, without hovers. Plotly's own drawing takes their room as soon as it can.

// Plotly's text waits at the end of the page, which may still be read, and runs when it is first
// needed. A served page has plotly from the start.
const hasPlotly = () => typeof Plotly !== 'undefined';

function startPlotly() {
  const text = document.readyState === 'loading' ? null : document.getElementById('plotly');
  if (!hasPlotly() && text) text.replaceWith(element('script', { textContent: text.textContent }));
  return hasPlotly();
}

const letters = (x, y, text, anchor, further) => (
  drawn('text', { x, y, fill: colour('ink'), 'text-anchor': anchor, ...further }, text));

// An axis: where its values lie in pixels, and its ticks.
class SketchedAxis {
  constructor(given, values, start, end) {
    Object.assign(this, { given, start, end, isLog: given.type === 'log' });
    [this.low, this.high] = given.range ?? this.rangeOf(values.map((value) => this.level(value)));
  }

  level(value) {
    return value === null ? NaN : this.isLog ? Math.log10(value) : value;
  }

  rangeOf(levels) {
    let [low, high] = [Infinity, -Infinity];
    for (const level of levels) {
      if (level < low && level > -Infinity) low = level;
      if (level > high && level < Infinity) high = level;
    }
    if (low > high) return [0, 1];
    const margin = 0.055 * (high - low) || 0.5;
    return [this.given.rangemode === 'tozero' ? Math.min(low, 0) : low - margin, high + margin];
  }

  at(value) {
    return this.ofLevel(this.level(value));
  }

  ofLevel(level) {
    return this.start + ((level - this.low) / (this.high - this.low)) * (this.end - this.start);
  }

  // Positions in pixels with their texts.
  ticks() {
    const { tickvals, ticktext } = this.given;
    const found = tickvals ? tickvals.map((value, at) => [this.at(value), plain(String(ticktext?.[at] ?? value))])
      : (this.isLog ? this.powers() : this.rounds()).map(([level, text]) => [this.ofLevel(level), text]);
    const [first, last] = [this.start, this.end].sort((one, other) => one - other);
    return found.filter(([at]) => at >= first - 0.5 && at <= last + 0.5);
  }

  powers() {
    const each = Number(this.given.dtick) || Math.max(1, Math.ceil((this.high - this.low) / 6));
    const digits = this.given.dtick === 'D2' || this.high - this.low < 2 ? [1, 2, 5] : [1];
    const found = [];
    for (let power = Math.floor(this.low / each) * each; power <= this.high; power += each) {
      for (const digit of digits) {
        const isPower = digits.length === 1 && this.given.exponentformat === 'power';
        found.push([power + Math.log10(digit), isPower ? powerOfTen(power) : figure(digit * 10 ** power)]);
      }
    }
    return found;
  }

  rounds() {
    const rough = (this.high - this.low) / (this.given.nticks ?? 8);
    const power = 10 ** Math.floor(Math.log10(Math.abs(rough)));
    const each = this.given.dtick ?? [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= Math.abs(rough));
    const found = [];
    const [low, high] = [this.low, this.high].sort((one, other) => one - other);
    for (let turn = Math.ceil(low / each); turn <= high / each; turn += 1) {
      const value = turn * each;
      found.push([value, this.given.tickformat === '.0%' ? `${Math.round(100 * value)}%` : figure(value)]);
    }
    return found;
  }
}

const RAISED = { '-': '⁻', 0: '⁰', 1: '¹', 2: '²', 3: '³', 4: '⁴', 5: '⁵', 6: '⁶', 7: '⁷', 8: '⁸', 9: '⁹' };
const powerOfTen = (power) => (power === 0 || power === 1 ? String(10 ** power) : `10${[...String(power)].map((sign) => RAISED[sign]).join('')}`);

const LETTER = 6.6;

class Sketch {
  constructor(data, layout, width) {
    Object.assign(this, { data, layout, width, height: layout.height });
    this.axes = new Map();
    const { l, r, t, b } = layout.margin;
    this.frame = { left: l, right: width - r, top: t, bottom: this.height - b };
  }

  axis(name) {
    if (!this.axes.has(name)) {
      const key = `${name[0]}axis${name.slice(1)}`;
      const given = this.layout[key] ?? {};
      const [first, last] = given.domain ?? [0, 1];
      const { left, right, top, bottom } = this.frame;
      const isAcross = name[0] === 'x';
      const place = (share) => (isAcross ? left + share * (right - left) : bottom - share * (bottom - top));
      const values = this.data.filter((trace) => (trace[`${name[0]}axis`] ?? name[0]) === name)
        .flatMap((trace) => trace[name[0]]);
      this.axes.set(name, new SketchedAxis(given, values, place(first), place(last)));
    }
    return this.axes.get(name);
  }

  names(letter) {
    return Object.keys(this.layout).filter((key) => key.startsWith(`${letter}axis`))
      .map((key) => letter + key.slice('xaxis'.length));
  }

  // A coordinate of a shape or an annotation.
  place(value, ref, letter) {
    if (ref && ref !== 'paper' && !ref.endsWith(' domain')) return this.axis(ref).at(value);
    const { left, right, top, bottom } = this.frame;
    const [start, end] = ref?.endsWith(' domain')
      ? [this.axis(ref.split(' ')[0]).start, this.axis(ref.split(' ')[0]).end]
      : letter === 'x' ? [left, right] : [bottom, top];
    return start + value * (end - start);
  }

  drawing() {
    const { width, height } = this;
    const { family, size } = this.layout.font;
    return drawn('svg', {
      width, height, viewBox: `0 0 ${width} ${height}`, 'font-family': family, 'font-size': size, 'aria-hidden': 'true',
    }, ...this.shapes(), ...this.rows(), ...this.columns(), ...this.data.flatMap((trace) => this.marks(trace)), ...this.legend(), ...this.annotations());
  }

  shapes() {
    return (this.layout.shapes ?? []).filter(({ type }) => type !== 'path').map((shape) => {
      const [x0, x1] = [shape.x0, shape.x1].map((value) => this.place(value, shape.xref, 'x'));
      const [y0, y1] = [shape.y0, shape.y1].map((value) => this.place(value, shape.yref, 'y'));
      return drawn('path', {
        d: `M${x0} ${y0}${shape.type === 'rect' ? `H${x1}V${y1}H${x0}Z` : `L${x1} ${y1}`}`, fill: shape.fillcolor ?? 'none',
        stroke: shape.line?.color, 'stroke-width': shape.line?.width ?? 1, opacity: shape.opacity,
      });
    });
  }

  rows() {
    const { left, right } = this.frame;
    return this.names('y').flatMap((name) => {
      const { given, start, end } = this.axis(name);
      const ticks = this.axis(name).ticks();
      const grid = given.showgrid === false ? [] : [drawn('path', {
        d: ticks.map(([at]) => `M${left} ${at}H${right}`).join(''), stroke: given.gridcolor,
      })];
      const title = given.title?.text ? [letters(14, (start + end) / 2, plain(given.title.text), 'middle', {
        transform: `rotate(-90 14 ${(start + end) / 2})`, 'font-size': 14,
      })] : [];
      return [...grid, ...ticks.map(([at, text]) => letters(left - 4, at + 4, text, 'end')), ...title];
    });
  }

  columns() {
    const { left, right, bottom } = this.frame;
    return this.names('x').filter((name) => this.layout[`xaxis${name.slice(1)}`].side !== 'top').flatMap((name) => {
      const { given } = this.axis(name);
      const ticks = this.axis(name).ticks();
      const grid = given.showgrid === false ? [] : [drawn('path', {
        d: ticks.map(([at]) => `M${at} ${this.frame.top}V${bottom}`).join(''), stroke: given.gridcolor,
      })];
      const title = given.title?.text ? [letters((left + right) / 2, this.height - 12, plain(given.title.text), 'middle', { 'font-size': 14 })] : [];
      return [...grid, ...apart(ticks).map(([at, text]) => letters(at, bottom + 16, text, 'middle')), ...title];
    });
  }

  marks(trace) {
    if (trace.visible === false) return [];
    const [across, up] = [this.axis(trace.xaxis ?? 'x'), this.axis(trace.yaxis ?? 'y')];
    const places = trace.x.map((x, at) => [across.at(x), up.at(trace.y[at])]);
    const found = [];
    const isKnown = ([x, y]) => Number.isFinite(x) && Number.isFinite(y);
    const steps = () => places.map((place, at) => (
      isKnown(place) ? `${at && isKnown(places[at - 1]) ? 'L' : 'M'}${place[0].toFixed(1)} ${place[1].toFixed(1)}` : '')).join('');
    const { line = {}, marker = {}, opacity, mode = 'lines' } = trace;
    if (trace.fill === 'toself') found.push(drawn('path', { d: steps(), fill: trace.fillcolor, opacity }));
    else if (mode.includes('lines')) found.push(drawn('path', { d: steps(), fill: 'none', stroke: line.color, 'stroke-width': line.width, opacity }));
    if (mode.includes('markers')) found.push(pointsOf(places.filter(isKnown), { opacity, ...marker }));
    return found;
  }

  // In a row where there is room, else one below the other.
  legend() {
    const shown = this.layout.showlegend ? this.data.filter((trace) => trace.name && trace.showlegend !== false && trace.visible !== false) : [];
    const { left, right, top } = this.frame;
    const widths = shown.map((trace) => 48 + plain(trace.name).length * LETTER);
    const isRow = widths.reduce((sum, width) => sum + width, 0) < right - left;
    let x = left;
    return shown.flatMap((trace, at) => {
      const y = top - 16 - (isRow ? 0 : 19 * (shown.length - 1 - at));
      const start = x;
      if (isRow) x += widths[at];
      const isLine = trace.mode?.includes('lines');
      const key = drawn('path', {
        d: isLine ? `M${start + 8} ${y}h30` : `M${start + 20} ${y}h0`, stroke: single(trace.marker?.color) ?? trace.line?.color,
        'stroke-width': isLine ? 2 : 7, 'stroke-linecap': isLine ? undefined : 'round',
      });
      return [key, letters(start + 44, y + 4, plain(trace.name), 'start')];
    });
  }

  annotations() {
    return (this.layout.annotations ?? []).filter(({ showarrow }) => showarrow === false).map((one) => letters(
      this.place(one.x, one.xref, 'x'), this.place(one.y, one.yref, 'y') - 4, plain(one.text),
      one.xanchor === 'right' ? 'end' : one.xanchor === 'left' ? 'start' : 'middle',
      { fill: one.font?.color ?? colour('ink'), 'font-weight': one.text.startsWith('<b>') ? 'bold' : undefined },
    ));
  }
}

// Ticks across whose texts do not overlap.
function apart(ticks) {
  let end = -Infinity;
  return ticks.filter(([at, text]) => {
    const half = (text.length * LETTER) / 2;
    if (at - half < end) return false;
    end = at + half + LETTER;
    return true;
  });
}

const single = (value) => (Array.isArray(value) ? value[0] : value);

// All marks of a trace in one path.
function pointsOf(places, { size = 6, color, symbol = 'circle', opacity }) {
  const isOpen = single(symbol).includes('open');
  const half = (single(size) / 2) * (isOpen ? 1.3 : 1);
  const d = places.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}${isOpen ? `m${-half} 0l${half} ${-half}l${half} ${half}l${-half} ${half}Z` : 'h0'}`).join('');
  return drawn('path', {
    d, 'data-marks': places.length, fill: 'none', stroke: single(color), opacity, 'stroke-width': isOpen ? 1 : 2 * half, 'stroke-linecap': 'round',
  });
}

// Draws a chart of lines and marks into its canvas; nothing of any other.
function sketch(canvas, content) {
  const switches = new Switches(content.switches ?? [], `${canvas.parentElement.id}-sketch`, () => {});
  const whole = switches.shown(content.figure);
  if (whole.data.some(({ type }) => type !== 'scatter')) return;
  const layout = themedLayout(whole.layout, Number(canvas.dataset.height));
  const isLong = whole.data.some((trace) => trace.meta?.envelope);
  const { figure, bands } = isLong ? enveloped(whole, content.figure, layout) : { figure: whole, bands: [] };
  const data = coloured([...bands, ...figure.data]);
  switches.controls.inert = true;
  canvas.replaceChildren(element('div', { className: 'sketch' },
    ...(content.switches ? [switches.controls] : []), new Sketch(data, layout, canvas.clientWidth).drawing()));
}
