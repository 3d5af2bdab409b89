// Draws what led to the steps of a run: alike steps as lanes, and the events of one step.

const LANE_HEIGHT = 12;

function lasted(seconds) {
  if (seconds === null) return '—';
  if (seconds < 1e-3) return `${figure(seconds * 1e6)} µs`;
  return seconds < 1 ? `${figure(seconds * 1e3)} ms` : `${figure(seconds)} s`;
}

// Counts and what is set to a whole number as they are.
const quantity = (value) => (Number.isInteger(value) && Math.abs(value) < 1e6 ? count(value) : figure(value));

class Timeline {
  constructor(canvas, content, tab) {
    Object.assign(this, { canvas, tab, lanes: content.lanes, windows: content.windows });
    Object.assign(this, { calls: content.calls, events: content.events, moreLanes: content.moreLanes });
    this.total = this.windows.step.length;
    this.at = content.first;
    this.indexEvents();
    this.build();
  }

  // Where the events of each window begin, and where their numbers do.
  indexEvents() {
    let event = 0;
    let number = 0;
    this.starts = this.windows.events.map((count) => {
      const start = event;
      event += count ?? 0;
      return start;
    });
    this.numberStarts = this.events.call.map((call) => {
      const start = number;
      number += this.calls.names[call].length;
      return start;
    });
  }

  build() {
    this.strips = this.lanes.map(() => element('canvas', { height: LANE_HEIGHT }));
    this.here = element('i', { 'aria-hidden': 'true' });
    let optimizer = '';
    const rows = this.lanes.flatMap((lane, index) => {
      const heading = lane.optimizer && lane.optimizer !== optimizer
        ? [element('h3', { textContent: lane.optimizer })] : [];
      optimizer = lane.optimizer;
      return [...heading, this.laneRow(lane, index)];
    });
    if (this.moreLanes) rows.push(element('p', { className: 'caption', textContent: `${count(this.moreLanes)} more, each of fewer steps` }));
    this.list = element('div', { className: 'lanes' }, ...rows);
    this.button = (label, title, act) => {
      const made = element('button', { type: 'button', textContent: label, title, 'aria-label': title });
      made.addEventListener('click', act);
      return made;
    };
    this.input = element('input', { type: 'number', min: this.windows.step[0], max: this.windows.step[this.total - 1], 'aria-label': 'Step' });
    this.input.addEventListener('change', () => this.goToStep(Number(this.input.value)));
    const isUnusual = this.lanes.some((lane) => !lane.isTypical);
    this.told = element('span', { className: 'told', 'aria-live': 'polite' });
    const bar = element('div', { className: 'controls' },
      this.button('⇤', 'First step (Home)', () => this.go(0)),
      this.button('←', 'Step before (left arrow)', () => this.go(this.at - 1)),
      element('label', {}, 'step ', this.input),
      this.button('→', 'Step after (right arrow)', () => this.go(this.at + 1)),
      this.button('⇥', 'Last step (End)', () => this.go(this.total - 1)),
      ...(isUnusual ? [this.button('next unusual', 'Next unusual step (Shift and right arrow)', () => this.goUnusual(1))] : []),
      this.told);
    this.body = element('tbody');
    this.rows = element('div', { className: 'events', tabIndex: 0, role: 'region', 'aria-label': 'Events of the step' },
      element('table', {}, element('thead', {}, element('tr', {}, ...['', 'took', 'event', 'of', 'measured', 'line'].map(
        (title) => element('th', { scope: 'col', textContent: title })))), this.body));
    this.canvas.append(this.list, bar, this.rows);
    this.canvas.addEventListener('keydown', (event) => this.move(event));
    // A canvas stretches what is drawn on it: in a new size, it is drawn again.
    this.size = new ResizeObserver(() => this.drawStrips());
    this.size.observe(this.list);
  }

  laneRow(lane, index) {
    const parts = lane.parts.flatMap((part, at) => [
      ...(at ? [element('span', { className: 'arrow', textContent: '→' })] : []),
      element('span', { className: 'part', textContent: part }),
    ]);
    const words = lane.isTypical ? `${count(lane.count)} ×` : `${count(lane.count)} ×, first at step ${count(lane.first)}`;
    const row = element('div', { className: `lane${lane.isTypical ? '' : ' unusual'}`, role: 'button', tabIndex: 0, title: `Next such step${lane.line ? `: ${lane.line}` : ''}` },
      element('div', { className: 'parts' }, ...parts), element('span', { className: 'count', textContent: words }),
      element('div', { className: 'strip' }, this.strips[index]));
    row.addEventListener('click', () => this.goToLane(index));
    row.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      this.goToLane(index);
    });
    return row;
  }

  go(index) {
    this.at = Math.min(Math.max(index, 0), this.total - 1);
    this.isOwn = true;
    this.tab.select({ step: this.windows.step[this.at] });
    this.isOwn = false;
    this.draw();
  }

  goToStep(step) {
    const index = this.windows.step.findLastIndex((one) => one <= step);
    this.go(Math.max(index, 0));
  }

  // On to the next window of a lane, from the last to the first.
  goToLane(lane) {
    const isOfLane = (one, index) => one === lane && index > this.at;
    const next = this.windows.lane.findIndex(isOfLane);
    this.go(next >= 0 ? next : this.windows.lane.indexOf(lane));
  }

  goUnusual(direction) {
    for (let index = this.at + direction; index >= 0 && index < this.total; index += direction) {
      if (!this.lanes[this.windows.lane[index]]?.isTypical) {
        this.go(index);
        return;
      }
    }
  }

  move(event) {
    if (event.target === this.input || event.ctrlKey || event.metaKey || event.altKey) return;
    const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (direction && event.shiftKey) this.goUnusual(direction);
    else if (direction) this.go(this.at + direction);
    else if (event.key === 'Home') this.go(0);
    else if (event.key === 'End') this.go(this.total - 1);
    else return;
    event.preventDefault();
  }

  show() {
    const { step } = this.tab.selection;
    if (step !== null && !this.isOwn && this.windows.step[this.at] !== step) {
      const index = this.windows.step.lastIndexOf(step);
      if (index >= 0) this.at = index;
    }
    this.draw();
  }

  draw() {
    const { step, lane, seconds, skipped, timed } = this.windows;
    const about = timed[this.at] ? '' : 'about ';
    const unusual = this.lanes[lane[this.at]]?.isTypical ? '' : ' · unusual';
    this.input.value = step[this.at];
    this.told.textContent = `${skipped[this.at] ? 'skipped before it' : about + lasted(seconds[this.at])}${unusual}`;
    const rows = [...this.list.querySelectorAll('.lane')];
    rows.forEach((row, index) => row.classList.toggle('chosen', index === lane[this.at]));
    this.reveal(rows[lane[this.at]]);
    this.here.style.left = `${(100 * this.at) / this.total}%`;
    this.here.style.width = `${100 / this.total}%`;
    this.strips[lane[this.at]]?.after(this.here);
    this.drawEvents();
  }

  // Where there are many lanes, the list of them scrolls.
  reveal(row) {
    if (!row) return;
    const top = row.offsetTop - this.list.offsetTop;
    const { scrollTop, clientHeight } = this.list;
    if (top < scrollTop || top + row.offsetHeight > scrollTop + clientHeight) {
      this.list.scrollTop = top - clientHeight / 2;
    }
  }

  drawEvents() {
    const size = this.windows.events[this.at];
    if (size === null) {
      const told = 'The events of this step are omitted to keep the file small. The lane above shows their kind.';
      this.body.replaceChildren(element('tr', {}, element('td', { colSpan: 6, className: 'missing', textContent: told })));
      return;
    }
    const start = this.starts[this.at];
    const { seconds } = this.events;
    const whole = this.windows.seconds[this.at];
    const begin = seconds[start + size - 1] - whole;
    const took = Array.from({ length: size }, (_, turn) => Math.max(seconds[start + turn] - (turn ? seconds[start + turn - 1] : begin), 0));
    // Nothing is known of what was before the first event of all.
    if (this.at === 0) took[0] = null;
    if (!this.windows.timed[this.at]) took.fill(null);
    const longest = Math.max(...took, 0);
    this.body.replaceChildren(...took.map((time, turn) => this.eventRow(start + turn, time, longest)));
  }

  eventRow(event, time, longest) {
    const { word, subject, line, names, notes } = this.calls;
    const call = this.events.call[event];
    const bar = element('span', { className: 'lasting' });
    bar.style.width = `${longest ? (100 * (time ?? 0)) / longest : 0}%`;
    const first = this.numberStarts[event];
    const measured = names[call].flatMap((name, at) => {
      const value = this.events.numbers[first + at];
      const kind = !Number.isFinite(value) ? 'broken' : value === 0 ? 'zero' : '';
      return [element('span', { className: 'quantity' }, `${name} `, element('b', { className: kind, textContent: quantity(value), title: String(value) }))];
    });
    measured.push(...notes[call].map((note) => element('span', { className: 'quantity', textContent: note })));
    const location = line[call] || '—';
    return element('tr', {},
      element('td', { className: 'time' }, bar), element('td', { className: 'number', textContent: lasted(time) }),
      element('td', { className: 'word', textContent: word[call] }), element('td', { className: 'name', textContent: subject[call] ?? '', title: subject[call] ?? '' }),
      element('td', { className: 'measured' }, ...measured), element('td', { className: 'location', textContent: location, title: location }));
  }

  // Every event of every step that the page holds.
  table() {
    const { word, subject, line, names, notes } = this.calls;
    const rows = this.windows.step.flatMap((step, at) => (
      Array.from({ length: this.windows.events[at] ?? 0 }, (_, turn) => {
        const event = this.starts[at] + turn;
        const call = this.events.call[event];
        const measured = names[call].map((name, index) => `${name}=${this.events.numbers[this.numberStarts[event] + index]}`);
        return [step, this.events.seconds[event], word[call], subject[call], [...measured, ...notes[call]].join('; '), line[call]];
      })));
    return { header: ['step', 'seconds', 'event', 'of', 'measured', 'line'], rows };
  }

  drawStrips() {
    const width = Math.round(this.list.clientWidth);
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    const left = (index) => Math.floor((index * width) / this.total);
    const size = (index) => Math.max(left(index + 1) - left(index), 1);
    const pens = this.strips.map((strip, index) => {
      strip.width = width * ratio;
      strip.height = LANE_HEIGHT * ratio;
      const pen = strip.getContext('2d');
      pen.scale(ratio, ratio);
      pen.fillStyle = colour(this.lanes[index].isTypical ? 'accent' : 'warning');
      return pen;
    });
    // Of many steps that fall on one pixel, one is drawn.
    const drawn = this.lanes.map(() => -1);
    this.windows.lane.forEach((lane, index) => {
      const at = left(index);
      if (!pens[lane] || drawn[lane] === at) return;
      drawn[lane] = at;
      pens[lane].fillRect(at, 0, size(index), LANE_HEIGHT);
    });
  }
}

painter('timeline', (canvas, content, tab) => {
  let timeline = new Timeline(canvas, content, tab);
  timeline.show();
  return {
    // The step that was chosen stays; without one, the last step of the newer run is shown.
    update: (next) => {
      timeline.size.disconnect();
      canvas.replaceChildren();
      timeline = new Timeline(canvas, next, tab);
      timeline.show();
    },
    show: () => timeline.show(), theme: () => timeline.drawStrips(), table: () => timeline.table(),
  };
});
