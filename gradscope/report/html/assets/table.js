// A table whose rows are sorted and filtered here; only those in view are in the document.

const ROW_HEIGHT = 26;
// Rows above and below the view, so that scrolling shows no gap.
const BEYOND = 12;
// On narrow screens a row is a card: words take a line each, numbers half of one.
const NARROW = matchMedia('screen and (max-width: 620px)');
const CARD_LINE = 22;
const CARD_EDGE = 14;
// A long table would print as hundreds of pages.
const PRINTED = 2000;

const KINDS = {
  number: { format: aligned, isNumber: true },
  count: { format: count, isNumber: true },
  share: { format: (value) => (value === null ? '—' : `${figure(value * 100)} %`), isNumber: true },
  cosine: { format: cosine, isNumber: true },
  name: { format: (value) => value ?? '' },
  text: { format: (value) => value ?? '' },
  location: { format: (value) => value ?? '—' },
  state: { format: (value) => value ?? '—' },
  findings: { format: (value) => (value ?? '').split(' ').filter((_, at) => at % 2).join(' ') },
};

function cellClass(kind, value) {
  if (kind === 'state') return `state-${value}`;
  if (!KINDS[kind].isNumber) return value === null ? 'missing' : '';
  if (value === null) return 'missing';
  if (!Number.isFinite(value)) return 'broken';
  return value === 0 && kind === 'number' ? 'zero' : '';
}

// Numbers ascend; what is broken is more than every number, what was not measured comes last.
function rank(value) {
  if (value === null) return [2, 0];
  if (Number.isNaN(value)) return [1, 1];
  return [0, value];
}

function compared(one, other, isNumber, direction) {
  // Numbers in names count as numbers: `layers.9` precedes `layers.10`.
  if (!isNumber) return direction * String(one ?? '').localeCompare(String(other ?? ''), 'en', { numeric: true });
  const [first, second] = [rank(one), rank(other)];
  if (first[0] === 2 || second[0] === 2) return first[0] - second[0];
  if (first[0] !== second[0]) return direction * (first[0] - second[0]);
  return direction * (first[1] < second[1] ? -1 : first[1] > second[1] ? 1 : 0);
}

// The columns with the values of those that are told of the modules, which the tab has already.
const resolved = (columns, links, tab) => columns.map((column) => (column.values ? column : {
  ...column,
  values: links.module.map((module) => {
    if (module === null) return null;
    return column.of === 'path' ? tab.name(module) : tab.modules[column.of][module];
  }),
}));

// A word of a filter that compares, as `norm>1e-3`; null where it is a word to look for.
function comparison(word, columns) {
  const parts = /^([^<>=]+)(<=|>=|<|>|=)(.+)$/.exec(word);
  const wanted = parts && parts[3].replace(/^inf$/, 'Infinity').replace(/^nan$/, 'NaN');
  if (!parts || (wanted !== 'NaN' && Number.isNaN(Number(wanted)))) return null;
  const named = columns.filter((column) => KINDS[column.kind].isNumber
    && column.title.toLowerCase().replace(/\s/g, '').includes(parts[1]));
  if (!named.length) return null;
  const { values, kind } = named[0];
  // Shares are written in percent, so `zero>50` means these.
  const limit = Number(wanted) / (kind === 'share' && Number(wanted) > 1 ? 100 : 1);
  const isMet = {
    '<': (value) => value < limit, '>': (value) => value > limit, '<=': (value) => value <= limit,
    // Object.is, as NaN does not equal itself.
    '>=': (value) => value >= limit, '=': (value) => Object.is(value, limit) || value === limit,
  }[parts[2]];
  return (index) => values[index] !== null && isMet(values[index]);
}

// How far a bar reaches for each number, on a logarithmic scale over the column.
function barLength(values) {
  const levels = values.filter((value) => value > 0 && Number.isFinite(value)).map(Math.log10);
  const [low, high] = levels.reduce(
    ([least, most], level) => [Math.min(least, level), Math.max(most, level)], [Infinity, -Infinity]);
  // The least has a bar too, and what hardly differs has bars alike.
  const start = Math.min(low - 0.1 * (high - low), high - 1);
  return (value) => (value > 0 && Number.isFinite(value) ? (Math.log10(value) - start) / (high - start) : 0);
}

class Rows {
  constructor(canvas, content, tab) {
    Object.assign(this, { canvas, tab });
    this.take(content);
    this.order = Array.from({ length: this.total }, (_, index) => index);
    this.sorted = null;
    this.words = [];
    this.build(content.name);
    this.apply();
  }

  take(content) {
    this.columns = resolved(content.columns, content.links, this.tab).map((column) => (
      column.bar ? { ...column, barLength: barLength(column.values) } : column));
    this.links = content.links ?? {};
    this.total = this.columns[0]?.values.length ?? 0;
  }

  // Takes newer rows; false if their columns are others.
  update(content) {
    const titles = this.columns.map(({ title }) => title).join('\n');
    this.take(content);
    if (this.columns.map(({ title }) => title).join('\n') !== titles) return false;
    this.apply();
    return true;
  }

  get rowHeight() {
    if (!NARROW.matches) return ROW_HEIGHT;
    const numbers = this.columns.slice(1).filter(({ kind }) => KINDS[kind].isNumber).length;
    return CARD_LINE * (this.columns.length - numbers + Math.ceil(numbers / 2)) + CARD_EDGE;
  }

  build(name) {
    this.search = element('input', { type: 'search', placeholder: 'filter', spellcheck: false, 'aria-label': `Filter ${name}` });
    this.search.addEventListener('input', () => this.apply());
    this.only = element('input', { type: 'checkbox' });
    this.only.addEventListener('change', () => this.apply());
    this.told = element('span', { className: 'missing', 'aria-live': 'polite' });
    this.canvas.append(element('div', { className: 'controls' },
      this.search, element('label', {}, this.only, ' only the selected layer'), this.told));
    this.head = element('tr');
    this.columns.forEach((column, index) => {
      const button = element('button', { type: 'button', textContent: column.title });
      button.addEventListener('click', () => this.sortBy(index));
      this.head.append(element('th', {
        scope: 'col', className: KINDS[column.kind].isNumber ? 'number' : '', title: column.hint ?? '', 'aria-sort': 'none',
      }, button));
    });
    this.body = element('tbody');
    this.view = element('div', { className: 'rows', tabIndex: 0, role: 'region', 'aria-label': name },
      element('table', {}, element('thead', {}, this.head), this.body));
    this.canvas.append(this.view);
    this.view.addEventListener('scroll', () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.body.addEventListener('click', (event) => this.pick(event.target.closest('tr')));
    this.view.addEventListener('keydown', (event) => this.move(event));
    this.view.addEventListener('copy', (event) => this.copy(event));
    NARROW.addEventListener('change', () => this.draw());
  }

  sortBy(index) {
    const isSame = this.sorted?.index === index;
    const isNumber = KINDS[this.columns[index].kind].isNumber;
    // The largest number first, the first name first; a third click goes back to the order given.
    if (isSame && this.sorted.turns === 1) this.sorted = null;
    else if (isSame) this.sorted = { index, direction: -this.sorted.direction, turns: 1 };
    else this.sorted = { index, direction: isNumber ? -1 : 1, turns: 0 };
    [...this.head.children].forEach((cell, at) => cell.setAttribute('aria-sort',
      this.sorted?.index !== at ? 'none' : this.sorted.direction > 0 ? 'ascending' : 'descending'));
    this.apply();
  }

  apply() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const comparisons = words.map((word) => comparison(word, this.columns));
    const needles = words.filter((_, at) => !comparisons[at]);
    this.words = words;
    const limits = comparisons.filter(Boolean);
    const worded = this.columns.filter((column) => !KINDS[column.kind].isNumber);
    const isOnly = this.only.checked && this.tab.selection.module !== null;
    this.order = [];
    for (let index = 0; index < this.total; index += 1) {
      if (isOnly && !this.tab.isInside(this.links.module?.[index])) continue;
      const isFound = limits.every((isMet) => isMet(index)) && needles.every((needle) => worded.some(
        (column) => String(column.values[index] ?? '').toLowerCase().includes(needle)));
      if (isFound) this.order.push(index);
    }
    if (this.sorted) {
      const { values, kind } = this.columns[this.sorted.index];
      const { direction } = this.sorted;
      this.order.sort((one, other) => compared(values[one], values[other], KINDS[kind].isNumber, direction) || one - other);
    }
    this.told.textContent = this.order.length === this.total
      ? `${count(this.total)} rows` : `${count(this.order.length)} of ${count(this.total)} rows`;
    this.draw();
  }

  draw() {
    const isWhole = document.documentElement.classList.contains('printing');
    // In a closed part it has no height: this is the largest that the style allows.
    const height = this.view.clientHeight || 560;
    const first = isWhole ? 0 : Math.max(0, Math.floor(this.view.scrollTop / this.rowHeight) - BEYOND);
    const last = Math.min(this.order.length, isWhole ? PRINTED : first + Math.ceil(height / this.rowHeight) + 2 * BEYOND);
    const rows = this.order.slice(first, last).map((index, at) => this.row(index, first + at));
    const rest = this.order.length - last;
    if (!rows.length) rows.push(this.remark(this.words.length ? 'No row matches the filter' : 'No row belongs to the selected layer'));
    const printed = rest ? `${count(rest)} more rows are not printed` : '';
    this.body.replaceChildren(this.space(first), ...rows, isWhole ? this.remark(printed) : this.space(rest));
  }

  remark(textContent) {
    return element('tr', { className: 'space' }, element('td', { className: 'missing', colSpan: this.columns.length, textContent }));
  }

  space(rows) {
    const cell = element('td', { colSpan: this.columns.length });
    // An empty row as high as all those left out keeps the length of the scroll bar.
    cell.style.height = `${rows * this.rowHeight}px`;
    return element('tr', { className: 'space', 'aria-hidden': 'true' }, cell);
  }

  isChosen(index) {
    const { parameter, tensor } = this.tab.selection;
    return (parameter !== null && this.links.parameter?.[index] === parameter)
      || (tensor !== null && this.links.tensor?.[index] === tensor);
  }

  cell(column, index) {
    const value = column.values[index];
    // A column may say why it has no number.
    const text = (value === null && column.instead?.[index]) || KINDS[column.kind].format(value);
    const made = element('td', {
      className: `${column.kind} ${cellClass(column.kind, value)}`,
      title: KINDS[column.kind].isNumber ? String(value ?? '') : text,
      'data-label': column.title,
    });
    if (column.kind === 'findings') made.append(...this.flags(value));
    else made.textContent = text;
    if (column.barLength) made.style.setProperty('--bar', `${100 * column.barLength(value)}%`);
    return made;
  }

  // Levels and codes in turn: `error GS101 note GS112`.
  flags(value) {
    const words = (value ?? '').split(' ').filter(Boolean);
    return words.flatMap((level, at) => (at % 2 ? [] : [
      manualOf(words[at + 1])
        ? element('button', { type: 'button', className: `flag ${level}`, textContent: words[at + 1], 'data-rule': words[at + 1], title: 'Open the manual' })
        : element('span', { className: `flag ${level}`, textContent: words[at + 1] })]));
  }

  row(index, at) {
    const made = element('tr', {}, ...this.columns.map((column) => this.cell(column, index)));
    if (this.tab.isInside(this.links.module?.[index])) made.classList.add('in');
    if (this.isChosen(index)) made.classList.add('chosen');
    made.dataset.index = index;
    // Counted from 1, with the header.
    made.setAttribute('aria-rowindex', at + 2);
    return made;
  }

  pick(row) {
    if (!row?.dataset.index) return;
    this.choose(Number(row.dataset.index));
  }

  choose(index) {
    const change = { parameter: null, tensor: null };
    for (const [name, column] of Object.entries(this.links)) change[name] = column[index];
    // A clicked row is in view already.
    this.isOwn = true;
    this.tab.select(change);
    this.isOwn = false;
  }

  move(event) {
    const rows = this.order.length;
    const now = this.order.findIndex((index) => this.isChosen(index));
    const page = Math.floor(this.view.clientHeight / this.rowHeight) - 2;
    const next = {
      ArrowDown: now + 1, ArrowUp: Math.max(now, 1) - 1, PageDown: now + page, PageUp: now - page,
      Home: 0, End: rows - 1,
    }[event.key];
    if (next === undefined || event.target !== this.view || !rows || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const at = Math.min(Math.max(next, 0), rows - 1);
    this.choose(this.order[at]);
    this.reveal(at);
  }

  // Copies the name of the chosen row, unless a text is marked.
  copy(event) {
    const index = this.order.find((one) => this.isChosen(one));
    if (index === undefined || String(getSelection())) return;
    const names = this.columns.find((column) => column.kind === 'name');
    event.clipboardData.setData('text/plain', names?.values[index] ?? '');
    event.preventDefault();
  }

  // The rows that are shown, in their order.
  table() {
    const cell = ({ kind, values }, index) => (kind === 'findings' ? KINDS.findings.format(values[index]) : values[index]);
    return {
      header: this.columns.map(({ title }) => title),
      rows: this.order.map((index) => this.columns.map((column) => cell(column, index))),
    };
  }

  reveal(at) {
    const top = at * this.rowHeight;
    const room = this.view.clientHeight - 2 * this.rowHeight;
    if (top < this.view.scrollTop || top > this.view.scrollTop + room) {
      this.view.scrollTop = Math.max(0, top - room / 2);
    }
  }

  show() {
    if (this.only.checked) this.apply();
    const at = this.order.findIndex((index) => this.isChosen(index) || this.tab.isInside(this.links.module?.[index]));
    if (at >= 0 && !this.isOwn) this.reveal(at);
    this.draw();
  }
}

painter('table', (canvas, content, tab) => {
  const rows = new Rows(canvas, content, tab);
  if (tab.selection.module !== null) rows.show();
  return { update: (next) => rows.update(next), show: () => rows.show(), theme: () => rows.draw(), table: () => rows.table() };
});
