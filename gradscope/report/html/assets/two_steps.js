// The gradients of two steps of a run side by side, the layers that changed most first.

// The column that holds a step; the nearest one outside of all.
function columnOf(edges, step) {
  const after = edges.findIndex((edge) => edge > step);
  return after < 0 ? edges.length - 2 : Math.max(after - 1, 0);
}

// The gradient norms of the heatmap by column, as finely as the page has them.
function gradientsOf({ figure, finer }) {
  const first = figure.data.findIndex(({ name }) => name === 'gradient norm');
  const traces = figure.data.slice(Math.max(first, 0))
    .filter(({ type, name }) => type === 'heatmap' && name.startsWith('gradient norm'));
  const [heat] = traces;
  if (!heat) return null;
  const common = { names: heat.y, rows: heat.meta.rows };
  const level = finer?.gradient;
  const { z, states } = level ? cellsOf(level) : {};
  const without = figure.data.find(({ type, name }) => type === 'heatmap' && name === 'no gradient');
  return level ? {
    ...common, edges: level.edges, steps: level.steps,
    columnName: (column) => steps(level.first[column], level.last[column]),
    normsOf: (column) => z.map((row, at) => normOf(row[column], states[at][column])),
    isWithout: (column, at) => states[at][column] === MISSING,
  } : {
    ...common, edges: heat.x, steps: heat.meta.steps,
    columnName: (column) => heat.meta.columns[column].replace('the largest of ', ''),
    normsOf: (column) => normsOf(traces, column),
    isWithout: (column, at) => Boolean(without?.z[at][column]),
  };
}

const normOf = (logarithm, state) => (
  logarithm !== null ? 10 ** logarithm : state === BROKEN ? NaN : state === ZERO ? 0 : null);

// The norms of a column by row: zero and NaN are traces of their own.
function normsOf(traces, column) {
  const [heat] = traces;
  const marked = (word) => traces.find(({ name }) => name === `${heat.name} ${word}`);
  const [zero, broken] = [marked('0'), marked('NaN, inf')];
  return heat.z.map((row, at) => {
    if (row[column] !== null) return 10 ** row[column];
    if (broken?.z[at][column]) return NaN;
    return zero?.z[at][column] ? 0 : null;
  });
}

// The step of the last column with a norm: at the end of a long run there may be none.
function lastMeasured({ steps, normsOf }) {
  const column = steps.findLastIndex((_, at) => normsOf(at).some((norm) => norm !== null));
  return steps.at(column);
}

// How far apart two norms are; what appears, vanishes or breaks differs most.
function distance(one, other) {
  if (one === null || other === null) return -1;
  if (one === other || (Number.isNaN(one) && Number.isNaN(other))) return 0;
  return one > 0 && other > 0 ? Math.abs(Math.log(other / one)) : Infinity;
}

class TwoSteps {
  constructor(canvas, tab) {
    Object.assign(this, { canvas, tab, shown: '' });
    const input = (key, label) => {
      const made = element('input', { type: 'number', min: 0, 'aria-label': label });
      made.addEventListener('change', () => {
        if (made.value !== '') tab.select({ [key]: Number(made.value) });
      });
      return made;
    };
    this.base = input('base', 'First step');
    this.step = input('step', 'Second step');
    this.view = element('div');
    canvas.append(element('div', { className: 'controls' },
      element('label', {}, 'from step ', this.base), element('label', {}, ' to step ', this.step)), this.view);
  }

  show() {
    const content = this.tab.content('heatmap');
    const heat = content && gradientsOf(content);
    const { base, step } = this.tab.selection;
    if (!heat) return;
    const steps = [base ?? heat.steps[0], step ?? lastMeasured(heat)];
    [this.base.value, this.step.value] = steps;
    const columns = steps.map((one) => columnOf(heat.edges, one));
    const shown = columns.map(heat.columnName).join('\n');
    // The table that is there keeps its filter, order and scroll.
    if (shown === this.shown) this.rows.show();
    else this.build(heat, columns);
    this.shown = shown;
  }

  build(heat, columns) {
    const [before, after] = columns.map(heat.normsOf);
    const order = heat.names.map((_, row) => row)
      .sort((one, other) => distance(before[other], after[other]) - distance(before[one], after[one]) || one - other);
    const number = (title, values, instead = () => null) => ({
      title, kind: 'number', values: order.map((row) => values[row]), instead: order.map(instead),
    });
    const ratio = before.map((norm, row) => (norm === null || after[row] === null ? null : after[row] / norm));
    this.view.replaceChildren();
    this.rows = new Rows(this.view, {
      name: 'the two steps',
      columns: [
        { title: 'layer', kind: 'name', values: order.map((row) => plain(heat.names[row])) },
        ...columns.map((column, at) => number(heat.columnName(column), at ? after : before,
          (row) => (heat.isWithout(column, row) ? 'no gradient' : null))),
        number('times', ratio),
      ],
      links: {
        module: order.map((row) => heat.rows.module[row]),
        parameter: order.map((row) => heat.rows.parameter[row]),
      },
    }, this.tab);
  }
}

painter('two-steps', (canvas, content, tab) => {
  const steps = new TwoSteps(canvas, tab);
  steps.show();
  return {
    show: () => steps.show(),
    update: () => {
      steps.shown = '';
      steps.show();
    },
    theme: () => steps.rows?.draw(),
    table: () => steps.rows.table(),
  };
});
