// The gradients of two steps of a run side by side, the layers that changed most first.

const nameOfColumn = (heat, column) => heat.meta.columns[column].replace('the largest of ', '');

// The column of the heatmap that holds a step; the nearest one outside of all.
function columnOf({ x, meta }, step) {
  const after = x.findIndex((edge) => edge > step);
  return after < 0 ? meta.columns.length - 1 : Math.max(after - 1, 0);
}

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

  get traces() {
    const traces = this.tab.content('heatmap')?.figure.data ?? [];
    return traces.slice(Math.max(traces.findIndex(({ name }) => name === 'gradient norm'), 0))
      .filter(({ type, name }) => type === 'heatmap' && name.startsWith('gradient norm'));
  }

  show() {
    const { traces } = this;
    const { base, step } = this.tab.selection;
    if (!traces.length) return;
    const [heat] = traces;
    const steps = [base ?? heat.meta.steps[0], step ?? heat.meta.steps.at(-1)];
    [this.base.value, this.step.value] = steps;
    const columns = steps.map((one) => columnOf(heat, one));
    const shown = columns.map((column) => nameOfColumn(heat, column)).join('\n');
    if (shown === this.shown) this.rows.show();
    else this.build(traces, columns);
    this.shown = shown;
  }

  build(traces, columns) {
    const [heat] = traces;
    const [before, after] = columns.map((column) => normsOf(traces, column));
    const order = heat.y.map((_, row) => row)
      .sort((one, other) => distance(before[other], after[other]) - distance(before[one], after[one]) || one - other);
    const number = (title, values) => ({ title, kind: 'number', values: order.map((row) => values[row]) });
    const ratio = before.map((norm, row) => (norm === null || after[row] === null ? null : after[row] / norm));
    this.view.replaceChildren();
    this.rows = new Rows(this.view, {
      name: 'the two steps',
      columns: [
        { title: 'layer', kind: 'name', values: order.map((row) => plain(heat.y[row])) },
        ...columns.map((column, at) => number(nameOfColumn(heat, column), at ? after : before)),
        number('times', ratio),
      ],
      links: {
        module: order.map((row) => heat.meta.rows.module[row]),
        parameter: order.map((row) => heat.meta.rows.parameter[row]),
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
