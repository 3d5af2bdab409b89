// A table whose rows are sorted and filtered here; only those in view are in the document.

const ROW_HEIGHT = 26;
const BEYOND = 12;

const KINDS = {
  number: { format: figure, isNumber: true },
  count: { format: count, isNumber: true },
  share: { format: (value) => (value === null ? '—' : `${figure(value * 100)} %`), isNumber: true },
  name: { format: (value) => value ?? '' },
  text: { format: (value) => value ?? '' },
  place: { format: (value) => value ?? '—' },
  state: { format: (value) => value ?? '—' },
};

function cellClass(kind, value) {
  if (kind === 'state') return `state-${value}`;
  if (!KINDS[kind].isNumber) return value === null ? 'missing' : '';
  if (value === null) return 'missing';
  if (!Number.isFinite(value)) return 'broken';
  return value === 0 ? 'zero' : '';
}

// Numbers ascend; what is broken is more than every number, what was not measured comes last.
function rank(value) {
  if (value === null) return [2, 0];
  if (Number.isNaN(value)) return [1, 1];
  return [0, value];
}

function compared(one, other, isNumber, direction) {
  if (!isNumber) return direction * String(one ?? '').localeCompare(String(other ?? ''), 'en', { numeric: true });
  const [first, second] = [rank(one), rank(other)];
  if (first[0] === 2 || second[0] === 2) return first[0] - second[0];
  if (first[0] !== second[0]) return direction * (first[0] - second[0]);
  return direction * (first[1] < second[1] ? -1 : first[1] > second[1] ? 1 : 0);
}

class Rows {
  constructor(canvas, content, sheet) {
    Object.assign(this, { canvas, columns: content.columns, links: content.links ?? {}, sheet });
    this.total = this.columns[0]?.values.length ?? 0;
    this.order = Array.from({ length: this.total }, (_, place) => place);
    this.sorted = null;
    this.needles = [];
    this.build(content.name);
    this.apply();
  }

  build(name) {
    this.search = element('input', { type: 'search', placeholder: 'filter', 'aria-label': `Filter ${name}` });
    this.search.addEventListener('input', () => this.apply());
    this.only = element('input', { type: 'checkbox' });
    this.only.addEventListener('change', () => this.apply());
    this.told = element('span', { className: 'missing', 'aria-live': 'polite' });
    this.canvas.append(element('div', { className: 'controls' },
      this.search, element('label', {}, this.only, ' only the selected layer'), this.told));
    this.head = element('tr');
    this.columns.forEach((column, place) => {
      const button = element('button', { type: 'button', textContent: column.title });
      button.addEventListener('click', () => this.sortBy(place));
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
  }

  sortBy(place) {
    const isSame = this.sorted?.place === place;
    const isNumber = KINDS[this.columns[place].kind].isNumber;
    // The largest number first, the first name first; a third click goes back to the order given.
    if (isSame && this.sorted.turns === 1) this.sorted = null;
    else if (isSame) this.sorted = { place, direction: -this.sorted.direction, turns: 1 };
    else this.sorted = { place, direction: isNumber ? -1 : 1, turns: 0 };
    [...this.head.children].forEach((cell, at) => cell.setAttribute('aria-sort',
      this.sorted?.place !== at ? 'none' : this.sorted.direction > 0 ? 'ascending' : 'descending'));
    this.apply();
  }

  apply() {
    const needles = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const worded = this.columns.filter((column) => !KINDS[column.kind].isNumber);
    const isOnly = this.only.checked && this.sheet.selection.module !== null;
    this.order = [];
    for (let place = 0; place < this.total; place += 1) {
      if (isOnly && !this.sheet.isInside(this.links.module?.[place])) continue;
      const isFound = needles.every((needle) => worded.some(
        (column) => String(column.values[place] ?? '').toLowerCase().includes(needle)));
      if (isFound) this.order.push(place);
    }
    if (this.sorted) {
      const { values, kind } = this.columns[this.sorted.place];
      const { direction } = this.sorted;
      this.order.sort((one, other) => compared(values[one], values[other], KINDS[kind].isNumber, direction) || one - other);
    }
    this.told.textContent = this.order.length === this.total
      ? `${count(this.total)} rows` : `${count(this.order.length)} of ${count(this.total)} rows`;
    this.draw();
  }

  draw() {
    const isWhole = matchMedia('print').matches;
    const height = this.view.clientHeight || 560;
    const first = isWhole ? 0 : Math.max(0, Math.floor(this.view.scrollTop / ROW_HEIGHT) - BEYOND);
    const last = Math.min(this.order.length, isWhole ? 400 : first + Math.ceil(height / ROW_HEIGHT) + 2 * BEYOND);
    const rows = this.order.slice(first, last).map((place, at) => this.row(place, first + at));
    this.body.replaceChildren(this.space(first), ...rows, this.space(this.order.length - last));
  }

  space(rows) {
    const cell = element('td', { colSpan: this.columns.length });
    cell.style.height = `${rows * ROW_HEIGHT}px`;
    return element('tr', { className: 'space', 'aria-hidden': 'true' }, cell);
  }

  isChosen(place) {
    const { parameter, tensor } = this.sheet.selection;
    return (parameter !== null && this.links.parameter?.[place] === parameter)
      || (tensor !== null && this.links.tensor?.[place] === tensor);
  }

  row(place, at) {
    const cells = this.columns.map(({ kind, values }) => {
      const text = KINDS[kind].format(values[place]);
      return element('td', { className: `${kind} ${cellClass(kind, values[place])}`, textContent: text, title: KINDS[kind].isNumber ? String(values[place] ?? '') : text });
    });
    const made = element('tr', {}, ...cells);
    if (this.sheet.isInside(this.links.module?.[place])) made.classList.add('in');
    if (this.isChosen(place)) made.classList.add('chosen');
    made.dataset.place = place;
    made.setAttribute('aria-rowindex', at + 2);
    return made;
  }

  pick(row) {
    if (!row?.dataset.place) return;
    this.choose(Number(row.dataset.place));
  }

  choose(place) {
    const change = { parameter: null, tensor: null };
    for (const [name, column] of Object.entries(this.links)) change[name] = column[place];
    this.isOwn = true;
    this.sheet.select(change);
    this.isOwn = false;
  }

  move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target !== this.view || !this.order.length) return;
    event.preventDefault();
    const now = this.order.findIndex((place) => this.isChosen(place));
    const next = Math.min(Math.max(now + step, 0), this.order.length - 1);
    this.choose(this.order[next]);
    this.reveal(next);
  }

  reveal(at) {
    const top = at * ROW_HEIGHT;
    const room = this.view.clientHeight - 2 * ROW_HEIGHT;
    if (top < this.view.scrollTop || top > this.view.scrollTop + room) {
      this.view.scrollTop = Math.max(0, top - room / 2);
    }
  }

  show() {
    if (this.only.checked) this.apply();
    const at = this.order.findIndex((place) => this.isChosen(place) || this.sheet.isInside(this.links.module?.[place]));
    if (at >= 0 && !this.isOwn) this.reveal(at);
    this.draw();
  }
}

painter('table', (canvas, content, sheet) => {
  const rows = new Rows(canvas, content, sheet);
  return { show: () => rows.show(), theme: () => rows.draw() };
});
